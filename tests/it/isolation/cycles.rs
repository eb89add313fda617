//! Making, using, killing and removing, again and again: nothing accumulates. `cycles` (a program of this package) does the
//! same two hundred times.

use events::spec::Mechanism;
use tests::cycles::run;

use super::Case;

on_every_mechanism! { cycles_leave_nothing }

async fn cycles_leave_nothing(mechanism: Mechanism) {
    let case = Case::start(mechanism).await;
    let report = run(&case.service, 6).await;
    assert_eq!(report.cycles, 6);
    case.finish().await;
}
