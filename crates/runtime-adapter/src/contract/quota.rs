//! The limits on the workspace's bytes and inodes, for commands and for the port's own writes.

use events::event::command::{Evidence, KillReason};
use events::spec::{Limits, Mechanism};

use super::subject::{Call, Subject, path_of};
use crate::ports::{EnvironmentHandle, ExecutionResult, WorkspaceError};

const MIB: u64 = 1 << 20;

async fn environment(subject: &Subject, limit: impl FnOnce(&mut Limits)) -> EnvironmentHandle {
    let mut spec = subject.spec();
    limit(&mut spec.limits);
    subject.adapter.execution.provision(spec).await.expect("provisioned")
}

/// The command was killed because there was too much of this.
///
/// # Panics
/// When it was not, or the evidence does not prove it.
pub(super) fn is_disk(result: &ExecutionResult, resource: &str, limit: u64) -> Evidence {
    assert_eq!((result.exit_code, result.killed_by), (None, Some(KillReason::Disk)), "{result:?}");
    let evidence = result.evidence.clone().expect("evidence");
    assert_eq!((evidence.resource.as_deref(), evidence.limit), (Some(resource), Some(limit)));
    assert!(evidence.measured.is_some_and(|measured| measured > limit), "{evidence:?}");
    evidence
}

/// Too many bytes are DISK, what was printed before is kept, and the next command can make room.
pub async fn bytes_over_the_limit_are_disk(subject: &Subject) {
    let handle = environment(subject, |limits| limits.workspace_bytes = 2 * MIB).await;
    subject.write(&handle, "mine", &[7; 1000]).await.expect("written");
    let result = subject
        .sh(
            &handle,
            "echo before; head -c 3000000 /dev/zero > big; head -c 3000000 /dev/zero > more; echo after",
        )
        .await;
    is_disk(&result, "bytes", 2 * MIB);
    assert!(result.stdout.head.starts_with(b"before\n"));
    assert!(result.files_changed.iter().any(|change| change.path.path == "big"), "what it did is listed");
    let next = subject.sh(&handle, "rm -f big more; cat mine").await;
    assert_eq!((next.exit_code, next.stdout.bytes_total), (Some(0), 1000));
    let fits = subject.sh(&handle, "head -c 1500000 /dev/zero > fits").await;
    assert_eq!((fits.exit_code, fits.killed_by), (Some(0), None));
}

/// Files, directories, links and FIFOs all count as inodes.
pub async fn inodes_over_the_limit_are_disk(subject: &Subject) {
    let handle = environment(subject, |limits| limits.inodes_max = 20).await;
    let make = |count: u32, what: &str| (0..count).map(|n| format!("{what}{n}; ")).collect::<String>();
    // A FIFO made under gVisor exists only inside it.
    let fifos_count = subject.mechanism != Mechanism::Gvisor;
    let fourth = if fifos_count { "mkfifo p" } else { "ln -s y t" };
    let fits = [make(5, "mkdir d"), make(5, "ln -s x s"), make(5, "echo > f"), make(5, fourth)].concat();
    let result = subject.sh(&handle, &fits).await;
    assert_eq!((result.exit_code, result.killed_by), (Some(0), None), "exactly the limit fits");
    let kinds = ["mkdir one", "ln -s x one", "echo > one", "mkfifo one"];
    for one_more in if fifos_count { &kinds[..] } else { &kinds[..3] } {
        let evidence = is_disk(&subject.sh(&handle, one_more).await, "inodes", 20);
        assert_eq!(evidence.measured, Some(21), "{one_more}");
        assert_eq!(subject.sh(&handle, "rm -rf one").await.killed_by, None, "{one_more}");
    }
}

/// A command that begins over the limit may remove and may not add; what it removes counts.
pub async fn over_the_limit_removing_is_all_there_is(subject: &Subject) {
    let handle = environment(subject, |limits| limits.inodes_max = 20).await;
    let many = (0..30).map(|n| format!("echo > f{n}; ")).collect::<String>();
    is_disk(&subject.sh(&handle, &many).await, "inodes", 20);
    let reading = subject.sh(&handle, "cat f0").await;
    assert_eq!((reading.exit_code, reading.killed_by), (Some(0), None));
    let all = (0..30).map(|n| format!("f{n} ")).collect::<String>();
    assert_eq!(subject.sh(&handle, &format!("rm -f {all}")).await.killed_by, None);
    assert_eq!(subject.sh(&handle, "echo > new").await.killed_by, None);
}

/// Who adds to a workspace that is too full again and again gets no more turns, until the port has made room.
pub async fn adding_in_spite_of_the_limit_ends_the_turns(subject: &Subject) {
    let handle = environment(subject, |limits| limits.inodes_max = 16).await;
    let names = |from: u32| (from..from + 20).map(|n| format!("echo > f{n}; ")).collect::<String>();
    for kill in 0..3 {
        is_disk(&subject.sh(&handle, &names(kill * 100)).await, "inodes", 16);
    }
    let refused = subject.sh(&handle, "echo ran").await;
    is_disk(&refused, "inodes", 16);
    assert_eq!((refused.stdout.bytes_total, refused.files_changed.len()), (0, 0), "it never began");
    loop {
        let page = subject.adapter.workspace.list(&handle, None, false, None, 100).await.expect("listed");
        if page.entries.len() <= 15 {
            break;
        }
        let path = String::from_utf8(page.entries[0].path.clone()).expect("text");
        subject.adapter.workspace.remove(&handle, &path_of(&path)).await.expect("removed");
    }
    let again = subject.sh(&handle, "echo > one-more; echo ran").await;
    assert_eq!((again.killed_by, again.stdout.head.as_slice()), (None, &b"ran\n"[..]));
}

/// The port's own writes are refused where a command would be killed, and leave nothing.
pub async fn writes_over_the_limit_are_refused(subject: &Subject) {
    let handle = environment(subject, |limits| {
        limits.workspace_bytes = MIB;
        limits.inodes_max = 16;
    })
    .await;
    subject.write(&handle, "a", &vec![1; 700_000]).await.expect("written");
    assert_eq!(subject.write(&handle, "b", &vec![1; 700_000]).await, Err(WorkspaceError::NoSpace));
    assert_eq!(subject.read(&handle, "b").await, Err(WorkspaceError::NotFound));
    let deep = (0..16).map(|n| format!("d{n}/")).collect::<String>();
    assert_eq!(subject.write(&handle, &format!("{deep}f"), b"").await, Err(WorkspaceError::NoSpace));
    let page = subject.adapter.workspace.list(&handle, None, true, None, 100).await.expect("listed");
    assert_eq!(page.entries.len(), 1, "no directory of it either: {:?}", page.entries);
    subject.write(&handle, "b", &vec![1; 200_000]).await.expect("written");
    subject.adapter.workspace.remove(&handle, &path_of("a")).await.expect("removed");
    subject.write(&handle, "c", &vec![1; 700_000]).await.expect("there is room again");
    let result = subject.sh(&handle, "cat b c").await;
    assert_eq!((result.killed_by, result.stdout.bytes_total), (None, 900_000));
    assert_eq!(result.files_changed, [], "what the port did is no command's change");
}

/// While a workspace is too full the port reads, lists and removes, and writes nothing, not even nothing.
pub async fn a_full_workspace_can_be_read_and_emptied(subject: &Subject) {
    let handle = environment(subject, |limits| limits.workspace_bytes = MIB).await;
    let result = subject.sh(&handle, "echo kept > kept; head -c 3000000 /dev/zero > big").await;
    is_disk(&result, "bytes", MIB);
    assert_eq!(subject.read(&handle, "kept").await.expect("read"), b"kept\n");
    assert_eq!(subject.write(&handle, "empty", b"").await, Err(WorkspaceError::NoSpace));
    assert_eq!(subject.write(&handle, "kept", b"smaller").await, Err(WorkspaceError::NoSpace));
    subject.adapter.workspace.remove(&handle, &path_of("big")).await.expect("removed");
    subject.write(&handle, "kept", b"smaller").await.expect("written");
    assert_eq!(subject.sh(&handle, "cat kept").await.stdout.head, b"smaller");
}

/// A background command answers for itself when nothing runs in the foreground.
pub async fn a_background_command_over_the_limit_is_disk(subject: &Subject) {
    let handle = environment(subject, |limits| limits.workspace_bytes = MIB).await;
    let script = "echo up; head -c 3000000 /dev/zero > big; head -c 3000000 /dev/zero > more";
    let result = subject.run(&handle, Call::sh(script).background()).await.expect("a result");
    is_disk(&result, "bytes", MIB);
    assert_eq!(result.stdout.head, b"up\n");
    assert_eq!(subject.sh(&handle, "rm -f big more; echo on").await.stdout.head, b"on\n");
}
