//! What a bundle proves and what not, for people and as JSON.

use std::fmt;

use event_log::proof::note::KeyId;
use event_log::verify::Report;
use events::Position;
use projections::timeline::Escaped;
use serde_json::{Value, json};

use super::anchor::Anchoring;
use super::check::names_its_run;
use super::{Head, StreamEnd};
use crate::shape::base64;
use crate::verdict::Verdict;
use crate::verify::seal::listed;

/// What a file proves without a signed head.
const CHAIN: &str = "chain intact; not anchored in a signed head";

/// The whole result. `Display` is for people.
#[derive(Debug)]
pub struct BundleReport {
    /// The outcome.
    pub verdict: Verdict,
    pub(super) head: Head,
    /// Events of the run's stream end with `RunClosed`.
    pub(super) closed: bool,
    pub(super) keys_given: bool,
    pub(super) anchoring: Anchoring,
    pub(super) report: Report,
}

impl BundleReport {
    /// How many events are in a log that a believed key has signed.
    fn anchored(&self) -> u64 {
        if self.anchoring.signers.is_empty() { 0 } else { self.anchoring.proven }
    }

    /// What is proven, exactly; `None` when something is wrong.
    fn proves(&self) -> Option<String> {
        if !matches!(self.verdict, Verdict::Valid | Verdict::Unanchored) {
            return None;
        }
        let (Some(checkpoint), anchored @ 1..) = (&self.anchoring.checkpoint, self.anchored()) else {
            return Some(CHAIN.to_owned());
        };
        let end = match (self.verdict, self.closed) {
            (Verdict::Valid, true) => "the run is closed, nothing follows".to_owned(),
            _ => format!("that nothing follows version {anchored} is not proven"),
        };
        Some(format!(
            "events 1 to {anchored} of run {} are in the log at checkpoint size {}, at the positions shown, signed by {}; complete \
             up to version {anchored}; {end}",
            self.head.run_id,
            checkpoint.size,
            listed(&self.anchoring.signers)
        ))
    }

    /// The JSON form: one object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let position_and_detail = |(position, detail)| json!({ "position": position, "detail": detail });
        let faults: Vec<Value> = self.faults().into_iter().map(position_and_detail).collect();
        let end = |end: &StreamEnd| json!({ "stream": end.stream, "version": end.version });
        let checkpoint = self.anchoring.checkpoint.as_ref().map(|checkpoint| {
            json!({
                "size": checkpoint.size,
                "root": base64(&checkpoint.root),
                "signed_by": self.anchoring.signers.iter().map(KeyId::to_string).collect::<Vec<_>>(),
            })
        });
        json!({
            "verdict": self.verdict.as_str(),
            "proof": if self.anchored() > 0 { "checkpoint" } else { "chain" },
            "proves": self.proves(),
            "log_id": self.head.log_id,
            "origin": self.head.origin,
            "tenant": self.head.tenant,
            "run_id": self.head.run_id,
            "closed": self.closed,
            "streams": self.head.streams.iter().map(end).collect::<Vec<_>>(),
            "keys_from": self.keys_given.then_some("given"),
            "checkpoint": checkpoint,
            "events_checked": self.report.events,
            "anchored_events": self.anchored(),
            "unanchored_events": self.report.events.saturating_sub(self.anchored()),
            "bytes_hashed": self.report.bytes,
            "faults_found": self.faults_found(),
            "faults": faults,
        })
    }

    /// What the first line says and the others do not.
    fn head_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.head.events != self.report.events {
            let (said, found) = (self.head.events, self.report.events);
            faults.push(format!("the first line announces {said} events, {found} are there"));
        }
        if !names_its_run(&self.head) {
            faults.push("the first line names a run whose stream is not there".to_owned());
        }
        faults
    }

    fn faults_found(&self) -> u64 {
        self.report.faults_found + self.anchoring.faults_found + self.head_faults().len() as u64
    }

    fn faults(&self) -> Vec<(Option<Position>, String)> {
        let of_file = self.head_faults().into_iter().map(|detail| (None, detail));
        let of_history = self.report.faults.iter().map(|fault| (fault.position, fault.what.to_string()));
        of_file.chain(of_history).chain(self.anchoring.faults.iter().cloned()).collect()
    }

    /// How far the history reaches, and what vouches for it.
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for end in &self.head.streams {
            let version = end.version;
            let more = if self.closed { "closed: nothing may follow" } else { "not closed: more may follow" };
            writeln!(f, "complete from version 1 to {version} of {}; {more}", end.stream)?;
        }
        match &self.anchoring.checkpoint {
            None => writeln!(
                f,
                "positions are as the file names them: only a signed head binds them to the events"
            )?,
            Some(checkpoint) if self.anchoring.signers.is_empty() => writeln!(
                f,
                "the file brings checkpoint {} and {} proofs that agree with it; --key says whose signature is believed",
                checkpoint.size, self.anchoring.proven
            )?,
            Some(checkpoint) => {
                writeln!(f, "checkpoint {}, root {}", checkpoint.size, base64(&checkpoint.root))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for BundleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Head { log_id, tenant, run_id, .. } = &self.head;
        writeln!(f, "run {run_id} of tenant {tenant}, log {log_id}")?;
        writeln!(
            f,
            "checked {} events, {} bytes: every leaf from stored bytes, each chained to the one before, bodies as committed",
            self.report.events, self.report.bytes
        )?;
        let faults = self.faults();
        for (position, detail) in &faults {
            match position {
                Some(position) => writeln!(f, "  FAULT at position {position}: {}", Escaped(detail))?,
                None => writeln!(f, "  FAULT: {}", Escaped(detail))?,
            }
        }
        let untold = self.faults_found().saturating_sub(faults.len() as u64);
        if untold > 0 {
            writeln!(f, "  and {untold} more")?;
        }
        let proves = self.proves();
        if proves.is_some() {
            self.describe(f)?;
        }
        let words = match (self.verdict, &proves) {
            (Verdict::Valid, Some(proves)) => format!("valid: {}", Escaped(proves)),
            (Verdict::Unanchored, Some(proves)) if self.anchored() > 0 => {
                let tail = self.report.events.saturating_sub(self.anchored());
                writeln!(f, "proven: {}", Escaped(proves))?;
                format!("UNANCHORED: the last {tail} events, which the checkpoint does not cover")
            }
            (Verdict::Valid | Verdict::Unanchored, _) => {
                format!("UNANCHORED: {CHAIN}: whoever wrote the file could have made all of it up")
            }
            (Verdict::Tampered, _) => "TAMPERED: the file is not what was recorded".to_owned(),
            (Verdict::Unreadable, _) => "UNREADABLE: this version does not know every event".to_owned(),
            (Verdict::Empty, _) => "EMPTY: no event was checked, which proves nothing".to_owned(),
        };
        writeln!(f, "{words}")
    }
}
