//! Claim, fence and transaction on a real server.

use event_log::testing::{TestDatabase, test_database};
use events::Position;
use events::stored::Recorded;
use futures::TryStreamExt as _;
use uuid::Uuid;

use super::samples::*;
use crate::session::{ApplyError, Claim, Session};
use crate::{
    CommandFilter, CommandStatus, Folded, LeaseFilter, PageRequest, ShownRow, View, Views, checkpoint,
    compare, connect, live,
};

async fn session(database: &TestDatabase) -> Session {
    let config = connect::config(&database.project_url(), "session test").unwrap();
    Session::connect(&config).await.unwrap().0
}

async fn claim(session: &Session) -> Claim {
    session.claim(Uuid::new_v4(), 1).await.unwrap()
}

/// A lease with an environment and two commands, to its end; each event has a leaf of its own.
fn history() -> Vec<Recorded> {
    let events = [
        acquired(1),
        requested(1),
        provisioned(1),
        accepted(1, 1),
        started(1),
        finished(1),
        accepted(2, 1),
        started(2),
        kill_requested(2),
        timed_out(2),
        released(1),
        teardown(1, events::event::environment::TeardownCause::Released),
        destroyed(1),
    ];
    let leaf = |position: u64| [u8::try_from(position).unwrap() + 1; 32];
    (0..)
        .zip(events)
        .map(|(position, event)| Recorded { leaf: leaf(position), ..recorded(position, event) })
        .collect()
}

fn fresh(history: &[Recorded]) -> Folded {
    let mut folded = Folded::default();
    history.iter().for_each(|event| folded.apply(event).unwrap());
    folded
}

/// The same, with every command put away as soon as it has ended.
fn sealed(history: &[Recorded]) -> Folded {
    let mut folded = Folded::default();
    for event in history {
        folded.apply(event).unwrap();
        folded.seal().unwrap();
    }
    folded
}

async fn assert_equal_to(database: &TestDatabase, history: &[Recorded]) {
    let client = database.administrator().await.unwrap();
    let found = compare(&client, fresh(history)).await.unwrap();
    assert!(found.is_equal(), "{found:#?}");
    assert!(found.rows_total() > 0 || history.is_empty(), "nothing was compared");
    assert_eq!(compare(&client, sealed(history)).await.unwrap(), found);
}

#[tokio::test]
async fn pages_of_every_size_leave_the_tables_as_a_fresh_fold() {
    let history = history();
    for size in [1, 2, 3, 5, history.len()] {
        let database = test_database().await;
        let session = session(&database).await;
        let mut claim = claim(&session).await;
        let mut applied = 0;
        for page in history.chunks(size) {
            session.apply(&mut claim, page).await.unwrap();
            applied += page.len();
            assert_equal_to(&database, &history[..applied]).await;
        }
        assert_eq!(claim.position, Position(history.len() as u64));
        assert_eq!(claim.leaf, Some(history.last().unwrap().leaf));
    }
}

#[tokio::test]
async fn rows_come_back_as_they_were_folded() {
    let database = test_database().await;
    let session = session(&database).await;
    session.apply(&mut claim(&session).await, &history()).await.unwrap();
    let views = Views::connect(&database.project_url()).unwrap();
    let folded = fresh(&history());

    let found = views.lease(Some(tenant()), lease(1)).await.unwrap().unwrap();
    assert_eq!(Some(&found.lease), folded.leases.get(lease(1)));
    assert_eq!(found.environment.as_ref(), folded.environments.get(environment(1)));
    assert_eq!(found.position(), Position(12), "of the environment's end, after the lease's own");
    let found = views.command(Some(tenant()), command(1)).await.unwrap().unwrap();
    assert_eq!(found.result.as_ref().unwrap().stdout.text, HOSTILE, "U+0000 and all");
    assert_eq!(Some(&found), folded.commands.get(command(1)));
    assert_eq!(views.run(tenant(), run()).await.unwrap().as_ref(), folded.runs.get((tenant(), run())));
}

#[tokio::test]
async fn rows_are_shown_alike_live_and_folded() {
    let database = test_database().await;
    let session = session(&database).await;
    session.apply(&mut claim(&session).await, &history()).await.unwrap();
    let client = database.administrator().await.unwrap();
    let folded = fresh(&history());
    for view in View::ALL {
        assert_eq!(view.as_str().parse(), Ok(view));
        let there: Vec<ShownRow> = live(&client, view).await.unwrap().try_collect().await.unwrap();
        let here: Vec<ShownRow> = folded.shown(view).collect::<Result<_, _>>().unwrap();
        assert_eq!(there, here);
        assert!(!here.is_empty(), "{view} shows nothing");
    }
    assert!("secrets".parse::<View>().is_err());
    let command = folded.shown(View::Commands).next().unwrap().unwrap();
    assert_eq!(command.get("stdout").unwrap()["text"], HOSTILE, "stored JSON as what it says");
    assert_eq!(command.get("secrets"), None);
    let text = serde_json::to_string(&command).unwrap();
    assert!(text.starts_with("{\"command_id\":"), "in the order of the columns: {text}");
}

#[tokio::test]
async fn commands_that_are_kept_stay_whole_when_others_are_put_away() {
    let mut folded = fresh(&history());
    folded.seal_but(&[command(2)].into()).unwrap();
    let kept: Vec<_> = folded.commands.iter().map(|row| row.command_id).collect();
    assert_eq!(kept, [command(2)]);
}

#[tokio::test]
async fn another_tenant_sees_nothing_and_the_operator_everything() {
    let database = test_database().await;
    let session = session(&database).await;
    session.apply(&mut claim(&session).await, &history()).await.unwrap();
    let views = Views::connect(&database.project_url()).unwrap();
    let page = PageRequest::default();
    for (who, sees) in [(Some(tenant()), 1), (Some(events::TenantId(uuid(77))), 0), (None, 1)] {
        assert_eq!(views.lease(who, lease(1)).await.unwrap().is_some(), sees == 1);
        assert_eq!(views.command(who, command(1)).await.unwrap().is_some(), sees == 1);
        assert_eq!(views.environment(who, environment(1)).await.unwrap().is_some(), sees == 1);
        assert_eq!(views.leases(who, &LeaseFilter::default(), &page).await.unwrap().items.len(), sees);
        assert_eq!(
            views.commands(who, &CommandFilter::default(), &page).await.unwrap().items.len(),
            2 * sees
        );
    }
}

#[tokio::test]
async fn lists_page_newest_first_and_filter() {
    let database = test_database().await;
    let session = session(&database).await;
    let mut claim = claim(&session).await;
    let count = 7_u128;
    let mut history = vec![recorded(0, acquired(1))];
    for number in 1..=count {
        history.push(recorded(u64::try_from(number).unwrap(), accepted(number, 1)));
    }
    history.push(recorded(8, started(3)));
    session.apply(&mut claim, &history).await.unwrap();
    let views = Views::connect(&database.project_url()).unwrap();

    let mut seen = Vec::new();
    let mut page = PageRequest { cursor: None, items_max: 3 };
    loop {
        let found = views.commands(Some(tenant()), &CommandFilter::default(), &page).await.unwrap();
        seen.extend(found.items.iter().map(|row| row.command_id));
        let Some(cursor) = found.next_cursor else { break };
        assert_eq!(found.items.len(), 3);
        page.cursor = Some(cursor.to_string().parse().unwrap());
    }
    assert_eq!(seen, (1..=count).rev().map(command).collect::<Vec<_>>());

    let whole = PageRequest::default();
    let running = CommandFilter { state: Some(CommandStatus::Running), ..CommandFilter::default() };
    let found = views.commands(None, &running, &whole).await.unwrap();
    assert_eq!(found.items.iter().map(|row| row.command_id).collect::<Vec<_>>(), [command(3)]);
    for (lease_id, run_id, expected) in
        [(lease(1), run(), 7), (lease(2), run(), 0), (lease(1), events::RunId(uuid(8)), 0)]
    {
        let filter = CommandFilter { lease_id: Some(lease_id), run_id: Some(run_id), state: None };
        assert_eq!(views.commands(None, &filter, &whole).await.unwrap().items.len(), expected);
    }
    let open = views.open_commands().await.unwrap();
    assert_eq!(
        open.iter().map(|open| open.command_id).collect::<Vec<_>>(),
        (1..=count).map(command).collect::<Vec<_>>()
    );
    let started: Vec<bool> = open.iter().map(|open| open.started).collect();
    assert_eq!(started, [false, false, true, false, false, false, false]);
    assert!(open.iter().all(|open| open.environment_id == environment(1) && !open.kill_requested));
}

#[tokio::test]
async fn a_page_of_large_rows_is_short_and_says_that_there_is_more() {
    let database = test_database().await;
    let session = session(&database).await;
    let mut claim = claim(&session).await;
    let count = 100_u128;
    let mut history = vec![recorded(0, acquired(1))];
    for number in 1..=count {
        let mut event = accepted(number, 1);
        if let events::Event::CommandAccepted(accepted) = &mut event {
            accepted.argv.push("x".repeat(60_000));
        }
        history.push(recorded(u64::try_from(number).unwrap(), event));
    }
    session.apply(&mut claim, &history).await.unwrap();
    let views = Views::connect(&database.project_url()).unwrap();

    let mut seen = Vec::new();
    let mut page = PageRequest { cursor: None, items_max: 1_000 };
    loop {
        let found = views.commands(None, &CommandFilter::default(), &page).await.unwrap();
        assert!((1..=69).contains(&found.items.len()), "4 MiB of rows at most: {}", found.items.len());
        seen.extend(found.items.iter().map(|row| row.command_id));
        let Some(cursor) = found.next_cursor else { break };
        page.cursor = Some(cursor);
    }
    assert_eq!(seen, (1..=count).rev().map(command).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_reconciler_sees_what_is_open_and_what_is_overdue() {
    let database = test_database().await;
    let session = session(&database).await;
    let mut claim = claim(&session).await;
    let history: Vec<Recorded> = (0..)
        .zip([acquired(1), requested(1), provisioned(1), acquired(2), requested(2), released(2)])
        .map(|(position, event)| recorded(position, event))
        .collect();
    session.apply(&mut claim, &history).await.unwrap();
    let views = Views::connect(&database.project_url()).unwrap();

    let open = views.open_environments(None).await.unwrap();
    let wanted = |now| open.iter().map(|open| open.is_wanted(now)).collect::<Vec<_>>();
    assert_eq!(open.len(), 2);
    assert_eq!(wanted(at(10_000)), [true, false], "the second one's lease was released");
    assert_eq!(wanted(at(60_000)), [false, false], "at its end the first lease is dead");
    let node = open[0].environment.node_id;
    assert_eq!(views.open_environments(Some(node)).await.unwrap().len(), 2);
    assert_eq!(views.open_environments(Some(events::NodeId(uuid(99)))).await.unwrap(), []);

    assert_eq!(views.overdue_leases(at(59_999)).await.unwrap(), []);
    let overdue = views.overdue_leases(at(60_000)).await.unwrap();
    assert_eq!(overdue.iter().map(|row| row.lease_id).collect::<Vec<_>>(), [lease(1)]);

    assert_eq!(views.closing_runs().await.unwrap(), []);
    let closing = events::Event::RunCloseRequested(events::event::lease::RunCloseRequested {});
    session.apply(&mut claim, &[recorded(6, closing)]).await.unwrap();
    assert_eq!(views.closing_runs().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_superseded_session_cannot_write_and_leaves_nothing_behind() {
    let database = test_database().await;
    let history = history();
    let (stale, current) = (session(&database).await, session(&database).await);
    assert!(stale.try_lock().await.unwrap());
    assert!(!current.try_lock().await.unwrap(), "one session at a time is elected");
    let mut old = claim(&stale).await;
    stale.apply(&mut old, &history[..4]).await.unwrap();
    // The other one claims although the first has not noticed that it lost its lock.
    let mut new = claim(&current).await;
    assert_eq!((new.fence, new.position), (old.fence + 1, Position(4)));
    let refused = stale.apply(&mut old, &history[4..6]).await;
    assert!(matches!(refused, Err(ApplyError::Superseded)), "{refused:?}");
    drop(stale);
    assert_equal_to(&database, &history[..4]).await;
    current.apply(&mut new, &history[4..]).await.unwrap();
    assert_equal_to(&database, &history).await;
}

#[tokio::test]
async fn a_page_that_does_not_follow_the_checkpoint_is_refused() {
    let database = test_database().await;
    let history = history();
    let first = session(&database).await;
    let mut held = claim(&first).await;
    let refused = first.apply(&mut held, &history[1..]).await;
    assert!(matches!(refused, Err(ApplyError::Order(_))), "{refused:?}");
    drop(first);
    let second = session(&database).await;
    let mut held = claim(&second).await;
    assert_eq!(held.position, Position(0));
    second.apply(&mut held, &history).await.unwrap();
    assert_equal_to(&database, &history).await;
}

#[tokio::test]
async fn every_kind_of_wrong_row_is_found() {
    let database = test_database().await;
    let history = history();
    let session = session(&database).await;
    session.apply(&mut claim(&session).await, &history).await.unwrap();
    let client = database.administrator().await.unwrap();
    let tampered = [
        (
            "UPDATE views.leases SET expires_at = expires_at + interval '1 us'",
            "Differs { columns: [\"expires_at\"] }",
        ),
        (
            "UPDATE views.commands SET exit_code = 7 WHERE exit_code = 0",
            "Differs { columns: [\"exit_code\"] }",
        ),
        ("UPDATE views.commands SET stdout = '[]' WHERE exit_code = 0", "Unreadable"),
        ("DELETE FROM views.commands WHERE exit_code = 0", "Missing"),
        ("DELETE FROM views.runs", "Missing"),
        ("INSERT INTO views.run_events SELECT 99, tenant, run_id, 1 FROM views.runs", "Surplus"),
        (
            "UPDATE views.consumers SET leaf_at_position = sha256('other')",
            "Differs { columns: [\"leaf_at_position\"] }",
        ),
        ("UPDATE views.consumers SET position = 12", "Differs { columns: [\"position\"] }"),
    ];
    for (statement, expected) in tampered {
        client.batch_execute("BEGIN").await.unwrap();
        client.batch_execute(statement).await.unwrap();
        let found = compare(&client, fresh(&history)).await.unwrap();
        assert_eq!(compare(&client, sealed(&history)).await.unwrap(), found);
        client.batch_execute("ROLLBACK").await.unwrap();
        assert!(!found.is_equal(), "{statement}");
        assert!(format!("{:?}", found.differences).contains(expected), "{statement}: {found:#?}");
    }
    assert_equal_to(&database, &history).await;
}

#[tokio::test]
async fn views_that_nobody_claimed_are_the_fold_of_nothing() {
    let database = test_database().await;
    let client = database.administrator().await.unwrap();
    assert_eq!(checkpoint(&client).await.unwrap(), None);
    assert_equal_to(&database, &[]).await;
}
