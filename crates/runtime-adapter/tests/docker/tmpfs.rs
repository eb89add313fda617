//! Workspaces in memory: the kernel's own limits, and what goes with the files container.

use events::event::command::InterruptCause;
use events::spec::Mechanism;
use runtime_adapter::container::Backing;
use runtime_adapter::contract::{Call, Subject, check};
use runtime_adapter::ports::{ExecuteError, PortError};

use super::engine::{docker, files, volume};
use super::subject_with;

const MIB: u64 = 1 << 20;

async fn subject() -> Subject {
    subject_with(Mechanism::Docker, |config| config.backing = Backing::Tmpfs).await
}

runtime_adapter::contract_cases! { subject;
    quota: bytes_over_the_limit_are_disk, inodes_over_the_limit_are_disk,
        over_the_limit_removing_is_all_there_is, writes_over_the_limit_are_refused, a_full_workspace_can_be_read_and_emptied,
        a_background_command_over_the_limit_is_disk;
    limits: a_disk_filler_is_stopped_within_the_bound, a_program_that_ignores_the_full_disk_is_disk,
        fillers_of_every_kind_are_disk, room_taken_without_writing_counts,
        a_nearly_full_workspace_can_be_worked_in;
    files_changed: created_modified_deleted;
    kills: kill_then_reuse, a_kill_deletes_no_file;
    lifecycle: a_restarted_service_takes_over, everything_is_listed_with_its_labels;
}

/// Whatever a program does, the kernel lets it take one mebibyte more than the limit, and no more.
#[tokio::test(flavor = "multi_thread")]
async fn the_limit_is_the_kernels_own() {
    check(subject().await, async |subject: &Subject| {
        let mut spec = subject.spec();
        spec.limits.workspace_bytes = 16 * MIB;
        spec.limits.inodes_max = 100;
        let handle = subject.adapter.execution.provision(spec).await.expect("provisioned");
        let script = "import os\nfds = []\ntaken = 0\ntry:\n    while True:\n        fd = os.open('f', os.O_CREAT | os.O_WRONLY); os.unlink('f'); fds.append(fd)\n        taken += os.write(fd, b'x' * (1 << 20))\nexcept OSError as error: print(taken >> 20, error.errno, flush=True)";
        let held = subject.run(&handle, Call::argv(&["python3", "-c", script])).await.expect("a result");
        let said = String::from_utf8(held.stdout.head).expect("text");
        // ENOSPC, or the kill came first.
        assert!(said.is_empty() || said == "16 28\n" || said == "17 28\n", "{said}");
        let script = "import os\nn = 0\ntry:\n    while True: os.mkdir(str(n)); n += 1\nexcept OSError as error: print(n, error.errno, flush=True)";
        let made = subject.run(&handle, Call::argv(&["python3", "-c", script])).await.expect("a result");
        let evidence = made.evidence.expect("evidence");
        assert_eq!((made.exit_code, evidence.resource.as_deref()), (None, Some("inodes")));
        assert!(evidence.measured.is_some_and(|measured| (101..=116).contains(&measured)), "{evidence:?}");
        let mounted = subject.sh(&handle, "grep ' /workspace ' /proc/mounts; rm -rf ./[0-9]*").await;
        let mounted = String::from_utf8(mounted.stdout.head).expect("text");
        for option in ["tmpfs", "nosuid", "nodev", "size=17408k", "nr_inodes=116"] {
            assert!(mounted.contains(option), "{option}: {mounted}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_that_do_not_go_together_are_refused() {
    check(subject().await, async |subject: &Subject| {
        let mut spec = subject.spec();
        spec.limits.workspace_bytes = spec.limits.memory_bytes - (256 << 20) + 1;
        let refused = subject.adapter.execution.provision(spec).await;
        assert_eq!(refused, Err(PortError::Rejected { code: "workspace_exceeds_memory" }));
        let handle = subject.environment().await;
        let name = files(handle.environment_id);
        let memory = docker(&["inspect", "--format", "{{.HostConfig.Memory}}", &name]).await;
        assert_eq!(memory.trim(), (512 * MIB).to_string());
        let name = volume(handle.environment_id);
        let options = docker(&["volume", "inspect", "--format", "{{.Options.type}}", &name]).await;
        assert_eq!(options.trim(), "tmpfs");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_goes_with_its_files_container() {
    check(subject().await, async |subject: &Subject| {
        let handle = subject.environment().await;
        subject.write(&handle, "file", b"kept").await.expect("written");
        let killed = subject.run(&handle, Call::sh("sleep 60").timeout_ms(300)).await.expect("a result");
        assert!(killed.killed_by.is_some());
        assert_eq!(subject.sh(&handle, "cat file").await.stdout.head, b"kept", "it survives the sandbox");
        docker(&["kill", &files(handle.environment_id)]).await;
        let lost = PortError::Lost { cause: InterruptCause::FilesLost };
        for _ in 0..2 {
            let ended = subject.run(&handle, Call::sh("cat file")).await;
            assert_eq!(ended, Err(ExecuteError::Port(lost.clone())));
        }
    })
    .await;
}
