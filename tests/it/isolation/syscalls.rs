//! Every system call number there is, once, with nothing in its arguments: which ones code reaches.
//!
//! A call is *reached* when the answer is neither "not permitted" nor "no such call". What may be reached is the golden list
//! of the mechanism; whatever else is, a newer kernel's or engine's doing, fails here and is looked at by a human.

use std::collections::BTreeMap;

use events::spec::Mechanism;
use serde_json::{Value, json};

use super::Case;

on_every_mechanism! { every_call_that_is_reached_is_on_the_list }

/// First number after the one time when all architectures began to share theirs: newer kernels only.
const RECENT: u64 = 424;

/// `uretprobe`, `uprobe`.
const PROBES: [u64; 2] = [335, 336];

/// `number name` per line.
fn golden(mechanism: Mechanism) -> BTreeMap<u64, &'static str> {
    let text = match mechanism {
        Mechanism::Docker => include_str!("golden/syscalls.docker"),
        Mechanism::Gvisor => include_str!("golden/syscalls.gvisor"),
        other => panic!("no golden list for {other}"),
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| line.split_once(' ').expect("a number and a name"));
    pairs.map(|(number, name)| (number.parse().expect("a number"), name)).collect()
}

async fn every_call_that_is_reached_is_on_the_list(mechanism: Mechanism) {
    let case = Case::start(mechanism).await;
    let sandbox = case.sandbox().await;
    let found = case.probe(&sandbox, include_str!("probes/sweep.py")).await;
    let answers = found["answers"].as_object().expect("answers");
    assert_eq!(answers.len(), 601, "every number was tried");
    let golden = golden(mechanism);
    let refused = |answer: &Value| *answer == json!("EPERM") || *answer == json!("ENOSYS");
    let mut wrong = Vec::new();
    for (number, answer) in answers {
        let number: u64 = number.parse().expect("a number");
        match golden.get(&number) {
            // The kernel lets its own probes' two past every filter since 6.14, and ends who calls them from elsewhere.
            None if PROBES.contains(&number) => {}
            None if !refused(answer) => wrong.push(format!("{number} is reached: {answer}")),
            // A call of a newer kernel may be missing on an older one.
            Some(name) if refused(answer) && number < RECENT && !name.starts_with('-') => {
                wrong.push(format!("{number} {name} is not reached: {answer}"));
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // The other doors into the same kernel: 32-bit calls and the x32 numbers. A kernel of its own has one door, whoever knocks.
    let doors = found["doors"].as_object().expect("doors");
    for (door, answer) in doors.iter().filter(|_| mechanism == Mechanism::Docker) {
        let answer = answer.as_str().expect("a word");
        assert!(answer.starts_with("died") || ["EPERM", "ENOSYS"].contains(&answer), "{door}: {answer}");
    }
    case.answers(&sandbox).await;
    case.finish().await;
}
