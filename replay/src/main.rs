//! `leasehold-replay`: see [`replay::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    replay::cli::main()
}
