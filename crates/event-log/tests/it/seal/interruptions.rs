//! Losses that are no faults: a second sealer, a database that is away, answers that never arrive.

use event_log::seal::{SealConfig, SealState, SealStatus};

use super::{root_of, says, sealed, sealing};
use crate::proxy::{Lose, Proxy};
use crate::support::until;

#[tokio::test]
async fn of_two_sealers_one_works_and_the_other_takes_over() {
    let sealing = sealing().await;
    let first = sealing.start();
    says(&first, |status| status.state == SealState::Sealing).await;
    let second = sealing.start();
    says(&second, |status| status.state == SealState::Standby).await;
    sealing.append(5).await;
    sealed(&first, 5).await;
    assert_eq!(
        *second.status().borrow(),
        SealStatus { state: SealState::Standby, sealed: 0, head_unwritten_since: None }
    );
    drop(first);
    says(&second, |status| status.state == SealState::Sealing).await;
    sealing.append(5).await;
    sealed(&second, 10).await;
    assert_eq!(sealing.last().await.root, root_of(&sealing.leaves().await));
}

#[tokio::test]
async fn a_lost_session_is_no_fault() {
    let sealing = sealing().await;
    sealing.append(5).await;
    let sealer = sealing.start();
    sealed(&sealer, 5).await;
    let admin = sealing.fixture.database.administrator().await.unwrap();
    let sql = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() \
               AND usename = 'leasehold_seal'";
    assert_eq!(admin.execute(sql, &[]).await.unwrap(), 1);
    let away = says(&sealer, |status| matches!(status.state, SealState::Unavailable { .. })).await;
    assert_eq!(away.sealed, 5);
    sealing.append(5).await;
    sealed(&sealer, 10).await;
    says(&sealer, |status| status.state == SealState::Sealing).await;
}

#[tokio::test]
async fn a_database_that_refuses_us_is_tried_again() {
    let sealing = sealing().await;
    let admin = sealing.fixture.database.administrator().await.unwrap();
    admin.batch_execute("REVOKE SELECT ON log.log_meta FROM leasehold_seal").await.unwrap();
    sealing.append(1).await;
    let sealer = sealing.start();
    let refused = says(&sealer, |status| matches!(status.state, SealState::Unavailable { .. })).await;
    let SealState::Unavailable { reason } = refused.state else { unreachable!() };
    assert!(reason.contains("42501"), "{reason}");
    admin.batch_execute("GRANT SELECT ON log.log_meta TO leasehold_seal").await.unwrap();
    sealed(&sealer, 1).await;
}

#[tokio::test]
async fn a_head_of_unknown_outcome_is_found_or_signed_again() {
    for lose in [Lose::Answer, Lose::Request] {
        let sealing = sealing().await;
        let database = &sealing.fixture.database;
        let proxy = Proxy::start(database.socket_dir(), b"INSERT INTO log.checkpoints");
        let url = proxy.url(&database.seal_url(), database.socket_dir());
        let sealer = sealing.start_with(SealConfig { database_url: url, ..sealing.config() });
        sealing.append(300).await;
        sealed(&sealer, 300).await;
        proxy.arm(lose);
        sealing.append(10).await;
        sealed(&sealer, 310).await;
        assert!(proxy.has_lost());
        sealing.append(10).await;
        sealed(&sealer, 320).await;
        assert_eq!(sealing.last().await.root, root_of(&sealing.leaves().await));
        sealing.kept(320).await;
    }
}

#[tokio::test]
async fn a_closed_log_ends_the_sealer() {
    let sealing = sealing().await;
    let (sender, positions) = tokio::sync::watch::channel(events::Position(0));
    let sealer = event_log::seal::Sealer::start(sealing.config(), positions).unwrap();
    says(&sealer, |status| status.state == SealState::Sealing).await;
    drop(sender);
    let status = sealer.status();
    until(async || status.has_changed().is_err()).await;
    sealing.unlocked().await;
}
