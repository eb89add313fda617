//! What the engine's client can say, as a closed set.

use crate::ports::PortError;

/// Why a call of the client failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CliError {
    /// The client could not be started (not installed, no process left).
    Start,
    /// The engine does not answer.
    Unreachable,
    /// The engine answers, but not to us.
    Permission,
    /// No answer within the deadline; the effect may have happened.
    Timeout,
    /// The container, volume or network is not there.
    Gone,
    /// The image is not there.
    NoSuchImage,
    /// A container of that name is there already.
    NameInUse,
    /// The container is there but does not run.
    NotRunning,
    /// Another call is removing it right now.
    BeingRemoved,
    /// The volume or network is still used by a container.
    InUse,
    /// The engine's disk is full.
    NoSpace,
    /// The runtime named is not registered with the engine.
    NoSuchRuntime,
    /// The guest in the image speaks another version of the protocol.
    GuestVersion,
    /// Anything else.
    Other,
}

/// Phrases of engines 20.10 to 29, in lower case, the more telling ones first.
const PHRASES: [(&str, CliError); 27] = [
    ("permission denied while trying to connect", CliError::Permission),
    ("cannot connect to the docker daemon", CliError::Unreachable),
    ("failed to connect to the docker api", CliError::Unreachable),
    ("error during connect", CliError::Unreachable),
    ("is the docker daemon running", CliError::Unreachable),
    ("connection refused", CliError::Unreachable),
    ("connection reset by peer", CliError::Unreachable),
    ("daemon is shutting down", CliError::Unreachable),
    ("unexpected eof", CliError::Unreachable),
    ("no such image", CliError::NoSuchImage),
    ("unable to find image", CliError::NoSuchImage),
    ("no space left on device", CliError::NoSpace),
    ("disk quota exceeded", CliError::NoSpace),
    ("is already in use by container", CliError::NameInUse),
    ("removal of container", CliError::BeingRemoved),
    ("is already in progress", CliError::BeingRemoved),
    ("marked for removal", CliError::BeingRemoved),
    ("no such container", CliError::Gone),
    ("no such volume", CliError::Gone),
    ("no such network", CliError::Gone),
    ("no such object", CliError::Gone),
    ("volume is in use", CliError::InUse),
    ("has active endpoints", CliError::InUse),
    ("is not running", CliError::NotRunning),
    ("unknown or invalid runtime name", CliError::NoSuchRuntime),
    ("unknown runtime specified", CliError::NoSuchRuntime),
    ("not found", CliError::Gone),
];

/// Reads the client's standard error.
pub(super) fn meaning(stderr: &str) -> CliError {
    let text = stderr.to_lowercase();
    let found = PHRASES.iter().find(|(phrase, _)| text.contains(phrase));
    found.map_or(CliError::Other, |(_, error)| *error)
}

impl CliError {
    /// As the ports say it, for a call whose object was expected to be there.
    pub(super) const fn to_port(self) -> PortError {
        let (code, effect_possible) = match self {
            Self::NoSuchImage => return PortError::Rejected { code: "unknown_image" },
            Self::NameInUse => return PortError::Rejected { code: "environment_exists" },
            Self::GuestVersion => return PortError::Rejected { code: "guest_version" },
            Self::Start => ("engine_client_missing", false),
            Self::Unreachable => ("engine_unreachable", true),
            Self::Permission => ("engine_permission", false),
            Self::Timeout => ("timeout", true),
            Self::NoSpace => ("no_space", true),
            Self::NoSuchRuntime => ("runtime_missing", false),
            Self::Gone | Self::NotRunning | Self::BeingRemoved | Self::InUse | Self::Other => {
                ("engine_error", true)
            }
        };
        PortError::Unavailable { code, effect_possible }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_phrases_have_one_meaning_each() {
        for (text, expected) in [
            ("Error: No such container: x", CliError::Gone),
            ("Error response from daemon: No such container: x", CliError::Gone),
            ("Error: No such image: sha256:00", CliError::NoSuchImage),
            ("docker: Error response from daemon: No such image: x:latest.", CliError::NoSuchImage),
            ("Error response from daemon: get x: no such volume", CliError::Gone),
            ("Error response from daemon: network x not found", CliError::Gone),
            (
                "docker: Error response from daemon: Conflict. The container name \"/x\" is already in use by \
                 container \"ab\". You have to remove (or rename) that container.",
                CliError::NameInUse,
            ),
            (
                "Error response from daemon: Cannot kill container: x: Container ab is not running",
                CliError::NotRunning,
            ),
            (
                "Error response from daemon: removal of container ab is already in progress",
                CliError::BeingRemoved,
            ),
            (
                "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
                CliError::Unreachable,
            ),
            ("error during connect: Post \"http://…\": EOF", CliError::Unreachable),
            ("Error response from daemon: remove x: volume is in use - [ab]", CliError::InUse),
            ("write /var/lib/docker/x: no space left on device", CliError::NoSpace),
            ("something new", CliError::Other),
        ] {
            assert_eq!(meaning(text), expected, "{text}");
        }
    }
}
