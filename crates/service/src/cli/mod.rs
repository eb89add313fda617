//! The command line. Data go to standard output, words for people to standard error; exit codes are part of the contract
//! ([`exit`]).

mod args;
mod client;
mod doctor;
mod events;
pub mod exit;
mod interrupt;
mod lease;
mod log;
mod migrate;
mod run;
mod serve;
mod sse;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Command};
use exit::Failure;

/// Runs the program: parses the arguments, does what they say, answers the exit code.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let environment: BTreeMap<String, OsString> =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value))).collect();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(&Failure::failed(format!("no threads can be started: {error}"))),
    };
    let done = runtime.block_on(async {
        match cli.command {
            Command::Serve(serve) => serve::serve(serve, environment).await,
            Command::Run(run) => run::run(run).await,
            Command::Lease(lease) => lease::lease(lease).await,
            Command::Events(events) => events::events(events).await,
            Command::Log(log) => log::log(log).await,
            Command::Migrate(migrate) => migrate::migrate(migrate).await,
            Command::Doctor(doctor) => doctor::doctor(doctor, environment).await,
        }
    });
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => exit::report(&failure),
    }
}
