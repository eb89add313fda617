//! Damage that only somebody who bypasses every guard can do: each kind is refused, and named.

use event_log::proof::checkpoint::{Checkpoint, CheckpointError};
use event_log::proof::note::{NoteError, SignerKey};
use event_log::proof::tiles::TileId;
use event_log::seal::{SealConfig, SealFault};
use events::Position;

use super::{Sealing, fault, sealed, sealing};
use crate::support::run_stream;

fn at(position: u64) -> Position {
    Position(position)
}

fn tile(path: &str) -> TileId {
    path.parse().unwrap()
}

/// `column = ` itself with one bit flipped.
fn flip(column: &str, byte: usize) -> String {
    format!("{column} = set_byte({column}, {byte}, get_byte({column}, {byte}) # 1)")
}

/// Another actor of the same length, still canonical, and the leaf that belongs to it.
fn rewrite(position: u64) -> String {
    format!(
        "UPDATE log.events SET header = x.header, leaf = sha256('\\x00'::bytea || x.header) \
         FROM (SELECT position AS p, convert_to(replace(convert_from(header, 'UTF8'), 'service:test', 'service:tesT'), 'UTF8') \
               AS header FROM log.events WHERE position = {position}) AS x WHERE position = x.p"
    )
}

/// 600 events, sealed at 300 and 600: two full tiles, 88 leaves that fill none, one tile above.
async fn sealed_log() -> Sealing {
    let sealing = sealing().await;
    for _ in 0..2 {
        sealing.append(300).await;
        sealing.seal().await;
    }
    sealing
}

/// What a sealer that starts after the damage says; it signs nothing, however much is appended.
async fn fault_after(sealing: &Sealing, sql: &str) -> SealFault {
    sealing.damage(sql).await;
    let heads = sealing.heads().await;
    let outside = std::fs::read(sealing.head_file()).unwrap();
    let fault = fault(&sealing.start()).await;
    assert_eq!(sealing.heads().await, heads);
    assert_eq!(std::fs::read(sealing.head_file()).unwrap(), outside);
    fault
}

#[tokio::test]
async fn sealed_events_that_were_changed_are_found() {
    for (sql, expected) in [
        (
            format!("UPDATE log.events SET {} WHERE position = 5", flip("header", 30)),
            SealFault::Leaf { position: at(5) },
        ),
        (
            format!("UPDATE log.events SET {} WHERE position = 599", flip("leaf", 3)),
            SealFault::Leaf { position: at(599) },
        ),
        (rewrite(5), SealFault::Sealed { position: at(5) }),
        // 540 is in the middle of a request on one stream, 599 the last of its stream.
        (rewrite(540), SealFault::Sealed { position: at(540) }),
        (rewrite(599), SealFault::Sealed { position: at(599) }),
        ("DELETE FROM log.events WHERE position = 255".to_owned(), SealFault::Gap { position: at(255) }),
        ("DELETE FROM log.events WHERE position = 512".to_owned(), SealFault::Gap { position: at(512) }),
        ("DELETE FROM log.events WHERE position >= 590".to_owned(), SealFault::Gap { position: at(590) }),
        // Who changes the stream's row too is told by the root alone.
        (
            format!(
                "{};UPDATE log.streams AS s SET tip = e.leaf FROM log.events AS e WHERE e.position = 599 AND s.id = e.stream_id",
                rewrite(599)
            ),
            SealFault::Root { size: 600 },
        ),
    ] {
        let sealing = sealed_log().await;
        assert_eq!(fault_after(&sealing, &sql).await, expected, "{sql}");
    }
}

#[tokio::test]
async fn new_events_are_checked_before_they_are_sealed() {
    // Position 603 is in the middle of a request on one stream.
    for (sql, expected) in [
        (format!("UPDATE log.events SET {} WHERE position = 603", flip("header", 30)), "leaf at position 603"),
        (format!("UPDATE log.events SET {} WHERE position = 603", flip("leaf", 3)), "leaf at position 603"),
        (rewrite(603), "position 604 is not chained"),
        ("DELETE FROM log.events WHERE position = 603".to_owned(), "no event at position 603"),
        ("DELETE FROM log.events WHERE position >= 603".to_owned(), "no event at position 603"),
        ("UPDATE log.events SET version = 9999 WHERE position = 603".to_owned(), "column version at position 603"),
        ("UPDATE log.events SET stream_id = 9999 WHERE position = 603".to_owned(), "position 603 follows nothing"),
        (
            "UPDATE log.events SET header = '{}', leaf = sha256('\\x007b7d') WHERE position = 603".to_owned(),
            "header at position 603 cannot be read",
        ),
        (
            "UPDATE log.events SET header = x.h, leaf = sha256('\\x00'::bytea || x.h) FROM (SELECT position AS p, \
             convert_to(regexp_replace(convert_from(header, 'UTF8'), '\"log_id\":\"[^\"]*\"', \
             '\"log_id\":\"00000000-0000-7000-8000-000000000000\"'), 'UTF8') AS h FROM log.events WHERE position = 603) AS x \
             WHERE position = x.p"
                .to_owned(),
            "header at position 603 names another log",
        ),
    ] {
        let sealing = sealed_log().await;
        sealing.append(10).await;
        let fault = fault_after(&sealing, &sql).await;
        assert!(fault.to_string().contains(expected), "{sql}: {fault}");
        assert!(fault.position().is_some());
    }
}

#[tokio::test]
async fn an_old_event_that_was_changed_is_found_when_its_stream_goes_on() {
    // Nothing older than the last tile is compared here: only the chain leads to position 2, the last of its stream.
    let header = format!("UPDATE log.events SET {} WHERE position = 2", flip("header", 30));
    let stream = run_stream(3);
    for (sql, expected) in [
        (rewrite(2), SealFault::Chain { position: at(603), stream }),
        (header, SealFault::Leaf { position: at(2) }),
    ] {
        let sealing = sealing().await;
        sealing.append(3).await;
        sealing.append(600).await;
        sealing.seal().await;
        sealing.damage(&sql).await;
        sealing.append(3).await;
        let config = SealConfig { recheck_events: 0, ..sealing.config() };
        assert_eq!(fault(&sealing.start_with(config)).await, expected, "{sql}");
    }
}

#[tokio::test]
async fn tiles_that_were_changed_are_found() {
    let (full, above) = ("level = 0 AND index = 0", "level = 1");
    for (sql, expected) in [
        (
            format!("UPDATE log.tiles SET {} WHERE {full}", flip("hashes", 32 * 17)),
            SealFault::TileChanged { tile: tile("tile/0/000"), position: at(17) },
        ),
        (
            format!("UPDATE log.tiles SET {} WHERE {above} AND width = 2", flip("hashes", 32)),
            SealFault::TileChanged { tile: tile("tile/1/000.p/2"), position: at(256) },
        ),
        (
            format!("DELETE FROM log.tiles WHERE {full}"),
            SealFault::TileMissing { tile: tile("tile/0/000"), position: at(0) },
        ),
        (
            format!("DELETE FROM log.tiles WHERE {above} AND width = 2"),
            SealFault::TileMissing { tile: tile("tile/1/000.p/2"), position: at(0) },
        ),
    ] {
        let sealing = sealed_log().await;
        assert_eq!(fault_after(&sealing, &sql).await, expected, "{sql}");
    }
}

#[tokio::test]
async fn checkpoints_that_were_changed_are_found() {
    let sealing = sealed_log().await;
    let (origin, last) = (sealing.origin.clone(), sealing.last().await);
    let stranger = SignerKey::from_seed(&origin, &[9; 32]).unwrap();
    let signed = |head: Checkpoint, key: &SignerKey| head.sign(std::slice::from_ref(key)).unwrap();
    let wrong = NoteError::WrongSignature(sealing.key.verifier().id().clone());
    let genuine = signed(last.clone(), &sealing.key);
    let refused = |reason: CheckpointError| SealFault::Checkpoint { size: 600, reason };
    for (note, expected) in [
        (genuine.replace("\n600\n", "\n599\n"), refused(wrong.into())),
        (signed(last.clone(), &stranger), refused(NoteError::NoKnownKey.into())),
        (signed(Checkpoint { root: [7; 32], ..last.clone() }, &sealing.key), SealFault::Root { size: 600 }),
        (
            signed(Checkpoint { size: 599, ..last.clone() }, &sealing.key),
            SealFault::CheckpointChanged { size: 600 },
        ),
        (
            signed(Checkpoint { origin: "example.org/x".to_owned(), ..last.clone() }, &sealing.key),
            refused(CheckpointError::Origin { found: "example.org/x".to_owned() }),
        ),
        (String::new(), refused(NoteError::Malformed("it has no signatures").into())),
    ] {
        let sql = format!("UPDATE log.checkpoints SET note = '{note}' WHERE size = 600");
        assert_eq!(fault_after(&sealing, &sql).await, expected, "{note}");
    }
    let gone = fault_after(&sealing, "DELETE FROM log.checkpoints WHERE size = 600").await;
    assert_eq!(gone, SealFault::HeadAhead { outside: 600, database: 300 });
    // Without a head outside, the tiles of the lost one tell.
    std::fs::remove_file(sealing.head_file()).unwrap();
    let beyond = SealFault::TileBeyond { tile: tile("tile/0/001"), size: 300 };
    assert_eq!(fault(&sealing.start()).await, beyond);
}

#[tokio::test]
async fn a_log_that_ends_before_its_head_is_found() {
    let sealing = sealed_log().await;
    let fault = fault_after(&sealing, "UPDATE log.log_head SET next_position = 400").await;
    assert_eq!(fault, SealFault::Shrunken { signed: 600, head: at(400) });
    assert_eq!(fault.position(), Some(at(400)));
}

#[tokio::test]
async fn damage_under_a_running_sealer_stops_it_for_good() {
    let leaf = format!("UPDATE log.events SET {} WHERE position = 515", flip("leaf", 3));
    let tile_above = format!("UPDATE log.tiles SET {} WHERE level = 1 AND width = 2", flip("hashes", 3));
    let (both, last) = (rewrite(515), rewrite(599));
    for (sql, expected) in [
        (leaf.as_str(), SealFault::Leaf { position: at(515) }),
        (both.as_str(), SealFault::Sealed { position: at(515) }),
        (last.as_str(), SealFault::Sealed { position: at(599) }),
        ("DELETE FROM log.events WHERE position = 515", SealFault::Gap { position: at(515) }),
        (tile_above.as_str(), SealFault::TileChanged { tile: tile("tile/1/000.p/2"), position: at(0) }),
        ("UPDATE log.checkpoints SET note = '' WHERE size = 600", SealFault::CheckpointChanged { size: 600 }),
        ("DELETE FROM log.checkpoints WHERE size = 600", SealFault::CheckpointChanged { size: 600 }),
        // Somebody else signs.
        ("INSERT INTO log.checkpoints VALUES (601, 'mine')", SealFault::CheckpointChanged { size: 600 }),
        (
            "INSERT INTO log.tiles VALUES (0, 2, 256, decode(repeat('00', 32 * 256), 'hex'))",
            SealFault::TileBeyond { tile: tile("tile/0/002"), size: 600 },
        ),
        (
            "INSERT INTO log.tiles VALUES (1, 0, 3, decode(repeat('00', 32 * 3), 'hex'))",
            SealFault::TileBeyond { tile: tile("tile/1/000.p/3"), size: 600 },
        ),
    ] {
        let sealing = sealed_log().await;
        let sealer = sealing.start();
        sealed(&sealer, 600).await;
        sealing.damage(sql).await;
        sealing.append(1).await;
        assert_eq!(fault(&sealer).await, expected, "{sql}");
        // It is over until it is started anew, and then it finds the same or worse.
        sealing.append(10).await;
        assert_eq!(sealer.status().borrow().sealed, 600);
        drop(sealer);
        fault(&sealing.start()).await;
        assert_eq!(sealing.outside().unwrap().size, 600);
    }
}
