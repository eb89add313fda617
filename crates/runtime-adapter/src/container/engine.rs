//! The few things the engine is asked to do with one object, each idempotent where repeating it is natural.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use events::ids::LogId;
use events::spec::ImageDigest;
use events::time::Timestamp;
use guest::protocol::PROTOCOL_VERSION;

use super::cli::{Cli, words};
use super::cli_error::CliError;
use super::disk::Disk;
use super::labels;

/// How often a removal that another call began is looked at, and for how long.
const REMOVAL_POLL: Duration = Duration::from_millis(100);
const REMOVAL_POLLS: u32 = 100;

/// The engine behind its client.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) cli: Cli,
    pub(super) disk: Disk,
    known_images: Mutex<HashSet<ImageDigest>>,
}

/// One container as the engine sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerState {
    pub(super) running: bool,
    pub(super) log_id: Option<LogId>,
    pub(super) created: Option<Timestamp>,
}

impl Engine {
    pub(super) fn new(cli: Cli, disk: Disk) -> Self {
        Self { cli, disk, known_images: Mutex::default() }
    }

    /// The engine answers.
    pub(super) async fn ping(&self) -> Result<(), CliError> {
        self.cli.text(words(["version", "--format", "{{.Server.Version}}"])).await.map(drop)
    }

    /// The id of the image of ours that a reference names now.
    ///
    /// # Errors
    /// `NoSuchImage`; `GuestVersion` for an image whose guest this adapter does not understand.
    pub(super) async fn image_id(&self, reference: &str) -> Result<ImageDigest, CliError> {
        let format = format!("{{{{.Id}}}} {{{{index .Config.Labels \"{}\"}}}}", labels::PROTOCOL);
        let text = self.cli.text(words(["image", "inspect", "--format", &format, "--", reference])).await;
        let text =
            text.map_err(|error| if error == CliError::Gone { CliError::NoSuchImage } else { error })?;
        let (id, protocol) = text.split_once(' ').unwrap_or((&text, ""));
        if protocol.parse() != Ok(PROTOCOL_VERSION) {
            return Err(CliError::GuestVersion);
        }
        id.parse().map_err(|_| CliError::Other)
    }

    /// The image of this digest is there; asked once per digest.
    pub(super) async fn check_image(&self, digest: &ImageDigest) -> Result<(), CliError> {
        let known = |images: &Mutex<HashSet<ImageDigest>>| {
            images.lock().unwrap_or_else(PoisonError::into_inner).contains(digest)
        };
        if known(&self.known_images) {
            return Ok(());
        }
        if self.image_id(digest.as_str()).await? != *digest {
            return Err(CliError::NoSuchImage);
        }
        self.known_images.lock().unwrap_or_else(PoisonError::into_inner).insert(digest.clone());
        Ok(())
    }

    /// Whether a container runs, and whose it is; `None` when it is not there.
    pub(super) async fn container(&self, name: &str) -> Result<Option<ContainerState>, CliError> {
        let format = format!(
            "{{{{.State.Running}}}} {{{{index .Config.Labels \"{}\"}}}} {{{{index .Config.Labels \"{}\"}}}}",
            labels::LOG,
            labels::CREATED
        );
        let text = match self.cli.text(words(["container", "inspect", "--format", &format, name])).await {
            Ok(text) => text,
            Err(CliError::Gone) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut words = text.split(' ');
        Ok(Some(ContainerState {
            running: words.next() == Some("true"),
            log_id: words.next().and_then(|word| word.parse().ok()),
            created: words.next().and_then(|word| word.parse().ok()),
        }))
    }

    /// Stops a container at once; one that does not run is fine.
    pub(super) async fn kill(&self, name: &str) -> Result<(), CliError> {
        match self.cli.run_at_once(words(["kill", name])).await {
            Ok(_) | Err(CliError::NotRunning) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Starts a container; one that runs is fine.
    pub(super) async fn start(&self, name: &str) -> Result<(), CliError> {
        self.cli.run(words(["start", name])).await.map(drop)
    }

    /// Removes a container, running or not; gone is success.
    pub(super) async fn remove_container(&self, name: &str) -> Result<(), CliError> {
        let removed = self.cli.run(words(["rm", "--force", "--volumes", name])).await;
        self.settle(removed, "container", name).await
    }

    /// Removes a volume; gone is success.
    pub(super) async fn remove_volume(&self, name: &str) -> Result<(), CliError> {
        let removed = self.cli.run(words(["volume", "rm", "--force", name])).await;
        self.settle(removed, "volume", name).await
    }

    /// Removes a network; gone is success.
    pub(super) async fn remove_network(&self, name: &str) -> Result<(), CliError> {
        let removed = self.cli.run(words(["network", "rm", name])).await;
        self.settle(removed, "network", name).await
    }

    /// The outcome of a removal, with one that somebody else began waited for.
    async fn settle(
        &self,
        removed: Result<Vec<u8>, CliError>,
        kind: &str,
        name: &str,
    ) -> Result<(), CliError> {
        match removed {
            Ok(_) | Err(CliError::Gone) => return Ok(()),
            Err(CliError::BeingRemoved) => {}
            Err(error) => return Err(error),
        }
        for _ in 0..REMOVAL_POLLS {
            match self.cli.run(words([kind, "inspect", name])).await {
                Ok(_) => tokio::time::sleep(REMOVAL_POLL).await,
                Err(CliError::Gone) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Err(CliError::BeingRemoved)
    }
}
