//! The container adapter on a real engine, once per mechanism: the contract, what only a kernel shows, the containers'
//! profile, faults. On a machine without gVisor those of the module `gvisor` fail: leaving them out is for the runner to say.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod channels;
mod engine;
mod exhausted;
mod faults;
mod profile;
mod start;
mod tmpfs;

use events::ids::{LogId, NodeId};
use events::spec::Mechanism;
use futures::future::BoxFuture;
use runtime_adapter::container::{ContainerAdapter, ContainerConfig};
use runtime_adapter::contract::{Adapter, Subject, TestClock};
use uuid::Uuid;

/// The configuration of a process with a log and a node of its own. However this machine's gVisor had to be registered, and
/// however old its engine is, they may be used.
fn config(mechanism: Mechanism) -> ContainerConfig {
    let mut config = ContainerConfig::new(LogId(Uuid::now_v7()), 0, NodeId(Uuid::now_v7()));
    config.mechanism = mechanism;
    config.gvisor_allow_host_network = true;
    config.allow_old_engine = true;
    config
}

/// An adapter with the defaults.
async fn subject(mechanism: Mechanism) -> Subject {
    subject_with(mechanism, |_| {}).await
}

/// An adapter with something else than the defaults.
async fn subject_with(mechanism: Mechanism, configure: impl FnOnce(&mut ContainerConfig)) -> Subject {
    subject_and_next(mechanism, configure, |_| {}).await
}

/// The same, and the process after it has something else again.
async fn subject_and_next(
    mechanism: Mechanism,
    configure: impl FnOnce(&mut ContainerConfig),
    next: impl FnOnce(&mut ContainerConfig),
) -> Subject {
    let (clock, mut config) = (TestClock::default(), config(mechanism));
    configure(&mut config);
    let started = ContainerAdapter::start(config.clone(), clock.as_clock()).await;
    let adapter = started.expect("the engine answers, has both images and runs the mechanism");
    let image = adapter.execution_image().clone();
    next(&mut config);
    let again = clock.clone();
    let restart = Box::new(move || {
        let (config, clock) = (config.clone(), again.as_clock());
        let started = async move { ContainerAdapter::start(config, clock).await };
        Box::pin(async move { Adapter::new(started.await.expect("the engine answers")) })
            as BoxFuture<'static, Adapter>
    });
    Subject::new(Adapter::new(adapter), clock, mechanism, image, restart)
}

/// Every suite on one mechanism.
macro_rules! suites {
    ($name:ident, $mechanism:expr, $($module:ident: $($case:ident),+;)+) => {
        mod $name {
            use runtime_adapter::contract::Subject;

            async fn subject() -> Subject {
                super::subject($mechanism).await
            }

            runtime_adapter::contract_suite!(subject);
            runtime_adapter::kernel_suite!(subject);

            $(mod $module {
                $(#[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    crate::$module::$case($mechanism).await;
                })+
            })+
        }
    };
}

/// The cases of this crate's own on one mechanism.
macro_rules! all_suites {
    ($name:ident, $mechanism:expr) => {
        suites! { $name, $mechanism,
            faults: a_sandbox_that_dies_is_told_and_repaired, a_sandbox_that_is_gone_stays_lost,
                a_supervisor_that_dies_is_told_and_the_container_restarted,
                every_command_in_a_lost_sandbox_is_told_the_same,
                a_files_container_that_dies_is_told_and_no_changes_are_invented,
                a_workspace_that_was_swapped_is_never_used, an_engine_that_is_down_is_told_and_everything_recovers,
                commands_run_again_after_an_outage, a_failed_provision_leaves_nothing, a_volume_alone_is_found_and_removed,
                a_caller_that_goes_away_leaves_no_half_environment,
                below_the_disk_reserve_nothing_new_begins,
                a_name_that_is_taken_is_told_in_our_words_and_its_owner_stays;
            channels: the_first_channel_is_the_containers_own, a_lost_client_ends_the_channel_and_not_the_container,
                a_client_lost_under_a_command_is_told, a_container_started_without_a_client_starts_no_spawn,
                a_provision_that_fails_leaves_no_client, a_provision_over_its_budget_leaves_nothing;
            profile: both_containers_have_exactly_the_rights_they_need, the_host_sees_the_processors_limit,
                a_foreign_container_with_a_similar_name_is_left_alone;
        }
    };
}

all_suites!(docker, events::spec::Mechanism::Docker);
all_suites!(gvisor, events::spec::Mechanism::Gvisor);
