//! What is lost, how it is told, and what is repaired.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use events::event::command::{InterruptCause, KillReason};
use events::spec::Mechanism;
use runtime_adapter::container::ContainerConfig;
use runtime_adapter::contract::{Call, RecordingSink, Subject, check, path_of};
use runtime_adapter::ports::{
    ByteStream, EnvironmentHandle, ExecuteError, ExecutionResult, PortError, Provenance, WorkspaceError,
};

use super::engine::{CuttableEngine, docker, files, sandbox, volume};
use super::{subject, subject_with};

pub(crate) const fn lost(cause: InterruptCause) -> PortError {
    PortError::Lost { cause }
}

/// Runs a long command and does something to it once it has begun.
pub(crate) async fn interrupted(
    subject: &Subject,
    handle: &EnvironmentHandle,
    accident: impl AsyncFnOnce(),
) -> Result<ExecutionResult, ExecuteError> {
    let sink = Arc::new(RecordingSink::default());
    let call = Call::sh("echo kept > file; echo up; sleep 60").timeout_ms(60_000).sink(&sink);
    let happen = async {
        sink.shows("up").await;
        accident().await;
    };
    tokio::join!(subject.run(handle, call), happen).0
}

pub(crate) async fn a_sandbox_that_dies_is_told_and_repaired(on: Mechanism) {
    check(subject(on).await, async |subject: &Subject| {
        let handle = subject.environment().await;
        let name = sandbox(handle.environment_id);
        let started = Instant::now();
        let ended = interrupted(subject, &handle, async || drop(docker(&["kill", &name]).await)).await;
        assert_eq!(ended, Err(lost(InterruptCause::SandboxLost).into()));
        assert!(started.elapsed() < Duration::from_secs(10));
        assert_eq!(subject.sh(&handle, "cat file").await.stdout.head, b"kept\n");
    })
    .await;
}

pub(crate) async fn a_sandbox_that_is_gone_stays_lost(on: Mechanism) {
    check(subject(on).await, async |subject: &Subject| {
        let handle = subject.environment().await;
        let name = sandbox(handle.environment_id);
        let ended =
            interrupted(subject, &handle, async || drop(docker(&["rm", "--force", &name]).await)).await;
        assert_eq!(ended, Err(lost(InterruptCause::SandboxLost).into()));
        for _ in 0..2 {
            let again = subject.run(&handle, Call::sh("true")).await;
            assert_eq!(again, Err(lost(InterruptCause::SandboxLost).into()));
        }
    })
    .await;
}

pub(crate) async fn a_supervisor_that_dies_is_told_and_the_container_restarted(on: Mechanism) {
    check(subject(on).await, async |subject: &Subject| {
        let handle = subject.environment().await;
        let name = sandbox(handle.environment_id);
        let script =
            "for p in /proc/[0-9]*; do grep -qz '^spawn$' $p/cmdline && kill -9 ${p#/proc/}; done; true";
        let before = docker(&["inspect", "--format", "{{.State.StartedAt}}", &name]).await;
        let kill = async || drop(docker(&["exec", &name, "sh", "-c", script]).await);
        let ended = interrupted(subject, &handle, kill).await;
        assert_eq!(ended, Err(lost(InterruptCause::SupervisorLost).into()));
        let seen = subject
            .sh(&handle, "cat file; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep [6]0'")
            .await;
        assert_eq!(seen.stdout.head, b"kept\n0\n");
        assert_ne!(docker(&["inspect", "--format", "{{.State.StartedAt}}", &name]).await, before);
    })
    .await;
}

pub(crate) async fn every_command_in_a_lost_sandbox_is_told_the_same(on: Mechanism) {
    check(subject(on).await, async |subject: &Subject| {
        let handle = subject.environment().await;
        let name = sandbox(handle.environment_id);
        let sink = Arc::new(RecordingSink::default());
        let beside = Call::sh("echo up; sleep 60").background().timeout_ms(60_000).sink(&sink);
        let accident = async {
            sink.shows("up").await;
            interrupted(subject, &handle, async || drop(docker(&["kill", &name]).await)).await
        };
        let (beside, ended) = tokio::join!(subject.run(&handle, beside), accident);
        let lost = lost(InterruptCause::SandboxLost);
        assert_eq!((beside, ended), (Err(lost.clone().into()), Err(lost.into())));
        let again = (0..3).map(|_| subject.run(&handle, Call::sh("cat file").background()));
        for result in futures::future::join_all(again).await {
            assert_eq!(result.expect("a result").stdout.head, b"kept\n");
        }
    })
    .await;
}

pub(crate) async fn a_files_container_that_dies_is_told_and_no_changes_are_invented(on: Mechanism) {
    check(subject(on).await, async |subject: &Subject| {
        let handle = subject.environment().await;
        let name = files(handle.environment_id);
        let ended = interrupted(subject, &handle, async || drop(docker(&["kill", &name]).await)).await;
        assert_eq!(ended, Err(lost(InterruptCause::FilesLost).into()));
        let next = subject.sh(&handle, "cat file").await;
        assert_eq!((next.stdout.head.as_slice(), next.files_changed.len()), (&b"kept\n"[..], 0));
        assert_eq!(subject.read(&handle, "file").await.expect("read"), b"kept\n");
    })
    .await;
}

pub(crate) async fn a_workspace_that_was_swapped_is_never_used(on: Mechanism) {
    check(subject(on).await, async |subject: &Subject| {
        let handle = subject.environment().await;
        let mount = format!("type=volume,source={},target=/workspace", volume(handle.environment_id));
        let image = subject.image.as_str();
        docker(&[
            "run",
            "--rm",
            "--network",
            "none",
            "--mount",
            &mount,
            image,
            "rm",
            "-rf",
            "/workspace/.leasehold",
        ])
        .await;
        for _ in 0..2 {
            let lost = lost(InterruptCause::FilesLost);
            assert_eq!(subject.run(&handle, Call::sh("true")).await, Err(lost.into()));
        }
        assert_eq!(subject.read(&handle, "x").await, Err(lost(InterruptCause::FilesLost).into()));
    })
    .await;
}

pub(crate) async fn an_engine_that_is_down_is_told_and_everything_recovers(on: Mechanism) {
    let engine = CuttableEngine::start();
    check(
        subject_with(on, |config| config.docker_host = Some(engine.address())).await,
        async |subject: &Subject| {
            let handle = subject.environment().await;
            let ended = interrupted(subject, &handle, async || engine.cut()).await;
            assert_eq!(ended, Err(lost(InterruptCause::ChannelLost).into()));

            let started = Instant::now();
            let unreachable = |error: &PortError| {
                matches!(error, PortError::Unavailable { code: "engine_unreachable", .. })
            };
            let refused = subject.adapter.execution.provision(subject.spec()).await;
            assert!(refused.as_ref().is_err_and(unreachable), "{refused:?}");
            let refused = subject.run(&handle, Call::sh("true")).await;
            let not_run = PortError::Unavailable { code: "engine_unreachable", effect_possible: false };
            assert_eq!(refused, Err(not_run.into()));
            assert!(subject.adapter.execution.ping().await.is_err_and(|error| unreachable(&error)));
            assert!(subject.adapter.inventory.list().await.is_err_and(|error| unreachable(&error)));
            let destroyed = subject.adapter.execution.destroy(handle.environment_id).await;
            assert!(destroyed.is_err_and(|error| unreachable(&error)));
            assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());

            engine.mend();
            subject.adapter.execution.ping().await.expect("the engine answers");
        },
    )
    .await;
}

pub(crate) async fn commands_run_again_after_an_outage(on: Mechanism) {
    let engine = CuttableEngine::start();
    check(
        subject_with(on, |config| config.docker_host = Some(engine.address())).await,
        async |subject: &Subject| {
            let handle = subject.environment().await;
            let ended = interrupted(subject, &handle, async || engine.cut()).await;
            assert_eq!(ended, Err(lost(InterruptCause::ChannelLost).into()));
            engine.mend();
            let next = subject
                .sh(&handle, "cat file; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep [6]0'")
                .await;
            assert_eq!(next.stdout.head, b"kept\n0\n");
            let killed = subject.run(&handle, Call::sh("sleep 60").timeout_ms(200)).await.expect("a result");
            assert_eq!(killed.killed_by, Some(KillReason::Timeout));
        },
    )
    .await;
}

pub(crate) async fn a_failed_provision_leaves_nothing(on: Mechanism) {
    check(subject(on).await, async |subject: &Subject| {
        let mut spec = subject.spec();
        // Below what the engine takes: the volume and the files container exist when the sandbox is refused.
        spec.limits.memory_bytes = 1 << 20;
        let refused = subject.adapter.execution.provision(spec).await;
        assert!(matches!(refused, Err(PortError::Unavailable { .. })), "{refused:?}");
        assert_eq!(subject.adapter.inventory.list().await, Ok(Vec::new()));
    })
    .await;
}

/// What runs or is there goes on and can be taken down.
pub(crate) async fn below_the_disk_reserve_nothing_new_begins(on: Mechanism) {
    let more_than_any_disk = |config: &mut ContainerConfig| config.disk_reserve_bytes = u64::MAX;
    check(super::subject_and_next(on, |_| {}, more_than_any_disk).await, async |subject: &Subject| {
        let spec = subject.spec();
        let roomy = subject.adapter.execution.provision(spec.clone()).await.expect("an environment");
        assert_eq!(subject.adapter.execution.check_room(&roomy).await, Ok(()));
        subject.write(&roomy, "kept", b"x").await.expect("room");

        let next = (subject.restart)().await;
        let handle = next.execution.adopt(spec).await.expect("what is there is taken over");
        let entry = next.workspace.stat(&handle, &path_of("kept")).await.expect("described");
        assert_eq!(entry.provenance, Provenance::Unknown, "whoever knew is gone");
        let full = PortError::Unavailable { code: "disk_reserve", effect_possible: false };
        assert_eq!(next.execution.check_room(&handle).await, Err(full.clone()));
        assert_eq!(next.execution.provision(subject.spec()).await, Err(full.clone()));
        let objects = next.inventory.list().await.expect("listed");
        assert!(
            objects.iter().all(|object| object.environment_id == Some(handle.environment_id)),
            "{objects:?}"
        );
        let piece: ByteStream = Box::pin(futures::stream::iter([Ok(Bytes::from_static(b"y"))]));
        let written = next.workspace.write(&handle, &path_of("new"), piece, 9).await;
        assert_eq!(written.map(drop), Err(WorkspaceError::Port(full)));
        next.workspace.remove(&handle, &path_of("kept")).await.expect("removing makes room");
        next.execution.destroy(handle.environment_id).await.expect("taken down");
    })
    .await;
}

/// As it is left when the engine stops between the volume and the first container.
pub(crate) async fn a_volume_alone_is_found_and_removed(on: Mechanism) {
    check(subject(on).await, async |subject: &Subject| {
        let id = subject.environment().await.environment_id;
        docker(&["rm", "--force", &sandbox(id), &files(id)]).await;
        let left = subject.adapter.inventory.list().await.expect("listed");
        assert_eq!(left.iter().map(|object| object.environment_id).collect::<Vec<_>>(), [Some(id)]);
        assert_eq!(left[0].name, volume(id));
        subject.adapter.execution.destroy(id).await.expect("destroyed");
        assert_eq!(subject.adapter.inventory.list().await, Ok(Vec::new()));
    })
    .await;
}

pub(crate) async fn a_caller_that_goes_away_leaves_no_half_environment(on: Mechanism) {
    check(subject(on).await, async |subject: &Subject| {
        let spec = subject.spec();
        let has_begun = async {
            while subject.adapter.inventory.list().await.expect("listed").is_empty() {}
        };
        tokio::select! {
            biased;
            () = has_begun => {}
            made = subject.adapter.execution.provision(spec.clone()) => panic!("nobody saw it begin: {made:?}"),
        }
        // The turn of this environment comes when the abandoned call has ended.
        let again = subject.adapter.execution.provision(spec).await;
        assert_eq!(again, Err(PortError::Rejected { code: "environment_exists" }));
        assert_eq!(subject.adapter.inventory.list().await.expect("listed").len(), 3);
    })
    .await;
}

pub(crate) async fn a_name_that_is_taken_is_told_in_our_words_and_its_owner_stays(on: Mechanism) {
    check(subject(on).await, async |subject: &Subject| {
        let spec = subject.spec();
        let name = sandbox(spec.environment_id);
        docker(&["create", "--name", &name, "--network", "none", subject.image.as_str(), "true"]).await;
        let refused = subject.adapter.execution.provision(spec.clone()).await;
        let owner =
            docker(&["ps", "--all", "--filter", &format!("name={name}"), "--format", "{{.Labels}}"]).await;
        docker(&["rm", "--force", &name]).await;
        assert_eq!(refused, Err(PortError::Rejected { code: "environment_exists" }));
        assert!(!owner.contains("leasehold.log"), "not touched: {owner}");
        // What was made before the name was found taken is removed with the environment.
        subject.adapter.execution.destroy(spec.environment_id).await.expect("destroyed");
        assert_eq!(subject.adapter.inventory.list().await, Ok(Vec::new()));
        // Another environment is no worse for it.
        let handle = subject.environment().await;
        assert_eq!(subject.sh(&handle, "echo on").await.stdout.head, b"on\n");
    })
    .await;
}
