//! `cycles [MECHANISM] [COUNT]`: provisions, kills and destroys that many environments (200 on docker by default) and proves that
//! nothing is left of them. For a long look by hand; the suite does it in short.

#![expect(clippy::panic, reason = "it says what is wrong by panicking, as a test does")]

use std::time::Duration;

use tests::cycles::run;
use tests::process::{Options, Service, data_dir, program};

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let mechanism = match arguments.next().as_deref() {
        None | Some("docker") => "docker",
        Some("gvisor") => "gvisor",
        Some(other) => panic!("no mechanism {other}: docker or gvisor"),
    };
    let count =
        arguments.next().map_or(200, |count| count.parse().unwrap_or_else(|_| panic!("no number: {count}")));
    let audit = program("leasehold-replay");
    println!("{count} cycles on {mechanism}, then {}", audit.display());
    let data = data_dir();
    let service = Service::start(data.path(), &Options { mechanism, ..Options::default() }).await;
    let report = run(&service, count).await;
    service.assert_verified().await;
    service.stop().await;
    let each = report.elapsed.checked_div(report.cycles).unwrap_or(Duration::ZERO);
    println!(
        "{mechanism}: {} cycles in {:.1} s ({} ms each): no container, volume, network, mount, process or descriptor is left",
        report.cycles,
        report.elapsed.as_secs_f64(),
        each.as_millis()
    );
}
