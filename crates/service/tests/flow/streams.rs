//! Output and history as streams.

use futures::StreamExt as _;
use runtime_adapter::ports::OutputStream;
use service::api::{OutputCursor, OutputItem, ServiceError};

use crate::harness::{Running, World, ctx, refusal};

async fn collect(
    service: &Running,
    command_id: events::CommandId,
    cursor: OutputCursor,
) -> (String, String, usize) {
    let mut items = service.app().output(&ctx(), command_id, cursor).await.unwrap();
    let (mut stdout, mut stderr, mut exits) = (String::new(), String::new(), 0);
    while let Some(item) = items.next().await {
        match item.unwrap() {
            OutputItem::Chunk { stream: OutputStream::Stdout, bytes, .. } => {
                stdout.push_str(std::str::from_utf8(&bytes).unwrap());
            }
            OutputItem::Chunk { stream: OutputStream::Stderr, bytes, .. } => {
                stderr.push_str(std::str::from_utf8(&bytes).unwrap());
            }
            OutputItem::Exit(command) => {
                assert!(command.state.is_ended());
                exits += 1;
            }
            OutputItem::Gap { .. } => panic!("nothing was left out"),
            OutputItem::KeepAlive => {}
        }
    }
    (stdout, stderr, exits)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_reader_gets_each_byte_once_from_its_cursor() {
    let world = World::new().await;
    let service = world.start().await;
    let (_, lease_id) = service.lease(60_000).await;
    let running = service.begin(lease_id, "echo one; sleep 0.3; echo two; echo err >&2").await;
    let start = OutputCursor::default();
    let (early, also) = tokio::join!(
        collect(&service, running.command_id, start),
        collect(&service, running.command_id, start)
    );
    assert_eq!(early, ("one\ntwo\n".to_owned(), "err\n".to_owned(), 1));
    assert_eq!(early, also);
    let resumed = collect(&service, running.command_id, OutputCursor { stdout: 4, stderr: 4 }).await;
    assert_eq!(resumed, ("two\n".to_owned(), String::new(), 1));
    let beyond =
        service.app().output(&ctx(), running.command_id, OutputCursor { stdout: 99, stderr: 0 }).await;
    assert_eq!(refusal(beyond.map(drop)), ServiceError::CursorGone);
    let end = collect(&service, running.command_id, OutputCursor { stdout: 8, stderr: 4 }).await;
    assert_eq!(end, (String::new(), String::new(), 1));
    service.stop_and_leave(std::time::Duration::ZERO).await;

    // Another process answers from the record.
    let service = world.start().await;
    let recorded = collect(&service, running.command_id, OutputCursor { stdout: 4, stderr: 0 }).await;
    assert_eq!(recorded, ("two\n".to_owned(), "err\n".to_owned(), 1));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_shows_the_past_and_then_what_happens() {
    let world = World::new().await;
    let service = world.start().await;
    let (run_id, lease_id) = service.lease(60_000).await;
    let mut tail = service.app().tail_run(&ctx(), run_id, None).await.unwrap();
    let mut next = async || tail.next().await.unwrap().unwrap().header.kind;
    assert_eq!(next().await, "LeaseAcquired");
    service.run(lease_id, "true").await;
    let kinds = [next().await, next().await, next().await, next().await, next().await];
    assert_eq!(
        kinds,
        [
            "EnvironmentRequested",
            "EnvironmentProvisioned",
            "CommandAccepted",
            "CommandStarted",
            "CommandFinished"
        ]
    );
    let unknown = service.app().tail_run(&ctx(), events::RunId(uuid::Uuid::now_v7()), None).await;
    assert_eq!(refusal(unknown.map(drop)), ServiceError::NotFound { what: "run" });
    service.stop().await;
}
