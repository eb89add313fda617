//! Facts from the runtime, made to fit: whatever is reported, the outcome can be recorded. Nothing here refuses.

use crate::bounds::{FILES_CHANGED_BYTES_MAX, INTEGER_MAX, SHORT_TEXT_BYTES_MAX, cut_text, is_sha256_hex};
use crate::event::command::{CommandFinished, Evidence, FileChange, Usage};

/// At most what JSON carries exactly.
pub(super) fn bounded_count(value: u64) -> u64 {
    value.min(INTEGER_MAX)
}

pub(super) fn bounded_text(text: &str) -> String {
    cut_text(text, SHORT_TEXT_BYTES_MAX).to_owned()
}

pub(super) fn bounded_evidence(reported: &Evidence) -> Evidence {
    let count = |value: Option<u64>| value.map(bounded_count);
    let text = |value: &Option<String>| value.as_deref().map(bounded_text);
    Evidence {
        limit_ms: count(reported.limit_ms),
        elapsed_ms: count(reported.elapsed_ms),
        limit_bytes: count(reported.limit_bytes),
        peak_bytes: count(reported.peak_bytes),
        oom_kills: count(reported.oom_kills),
        limit: count(reported.limit),
        peak: count(reported.peak),
        refused_forks: count(reported.refused_forks),
        resource: text(&reported.resource),
        measured: count(reported.measured),
        source: text(&reported.source),
        produced_bytes: count(reported.produced_bytes),
        by: text(&reported.by),
        stopped_with: reported.stopped_with,
        expires_at: reported.expires_at,
        deadline_ms: count(reported.deadline_ms),
        start_error: text(&reported.start_error),
        stdin_undelivered_bytes: count(reported.stdin_undelivered_bytes),
    }
}

pub(super) fn bounded_finished(reported: &CommandFinished) -> CommandFinished {
    let (files_changed, cut) = bounded_changes(&reported.files_changed);
    CommandFinished {
        command_id: reported.command_id,
        exit_code: reported.exit_code.filter(|_| reported.killed_by.is_none()),
        killed_by: reported.killed_by,
        evidence: reported.evidence.as_ref().map(bounded_evidence),
        stdout: reported.stdout.bounded(),
        stderr: reported.stderr.bounded(),
        stragglers: reported.stragglers,
        files_changed,
        files_changed_truncated: reported.files_changed_truncated || cut,
        usage: Usage {
            cpu_ms: reported.usage.cpu_ms.map(bounded_count),
            peak_memory_bytes: reported.usage.peak_memory_bytes.map(bounded_count),
        },
        duration_ms: bounded_count(reported.duration_ms),
    }
}

/// The longest beginning of the list that fits, and whether something was left out.
fn bounded_changes(reported: &[FileChange]) -> (Vec<FileChange>, bool) {
    let mut kept = Vec::new();
    let mut bytes = 2;
    for change in reported {
        let change = FileChange {
            path: change.path.bounded(),
            change: change.change,
            size_bytes: change.size_bytes.map(bounded_count),
            sha256: change.sha256.clone().filter(|digest| is_sha256_hex(digest)),
        };
        bytes += change.json_bytes_max();
        if bytes > FILES_CHANGED_BYTES_MAX {
            return (kept, true);
        }
        kept.push(change);
    }
    (kept, false)
}
