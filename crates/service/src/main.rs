//! The program `leasehold`; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    service::cli::main()
}
