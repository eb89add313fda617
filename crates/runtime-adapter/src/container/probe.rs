//! A look at the engine without a log, for diagnosis.

use std::path::Path;
use std::sync::Arc;

use events::spec::ImageDigest;

use super::cli::{Cli, words};
use super::cli_error::CliError;
use super::disk::Disk;
use super::engine::Engine;
use super::gvisor::{self, GvisorFacts};
use super::labels;
use super::private::PrivateFiles;
use crate::ports::PortError;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The engine's version as it says it, for example `20.10.24+dfsg1`.
    pub server_version: String,
    /// What became of each image asked for, in the same order.
    pub images: Vec<ProbedImage>,
}

/// One image of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbedImage {
    /// The engine does not have it.
    Missing,
    /// Its guest speaks another version of the protocol than this program.
    OtherVersion,
    /// It can be used; its id.
    Usable(ImageDigest),
}

/// Asks the engine for its version and for images.
///
/// # Errors
/// `Unavailable` with the codes of every other call: `engine_client_missing`, `engine_unreachable`, `engine_permission`.
pub async fn probe(
    docker_path: Option<&Path>,
    docker_host: Option<&str>,
    images: &[&str],
) -> Result<Probe, PortError> {
    let found = async {
        let engine = engine(docker_path, docker_host).await?;
        let server_version = engine.cli.text(words(["version", "--format", "{{.Server.Version}}"])).await?;
        let mut ids = Vec::new();
        for reference in images {
            ids.push(match engine.image_id(reference).await {
                Ok(id) => ProbedImage::Usable(id),
                Err(CliError::NoSuchImage) => ProbedImage::Missing,
                Err(CliError::GuestVersion) => ProbedImage::OtherVersion,
                Err(error) => return Err(error),
            });
        }
        Ok(Probe { server_version, images: ids })
    };
    found.await.map_err(CliError::to_port)
}

/// Verifies gVisor as the mechanism does at its start: its registration with the engine, and a container in it.
///
/// # Errors
/// As `ContainerAdapter::start` with the mechanism `gvisor`.
pub async fn probe_gvisor(
    docker_path: Option<&Path>,
    docker_host: Option<&str>,
    runtime: &str,
    allow_host_network: bool,
    image: &ImageDigest,
) -> Result<GvisorFacts, PortError> {
    let engine = engine(docker_path, docker_host).await.map_err(CliError::to_port)?;
    gvisor::verify(&engine, runtime, allow_host_network, image, labels::unowned_probe()).await
}

async fn engine(docker_path: Option<&Path>, docker_host: Option<&str>) -> Result<Engine, CliError> {
    let private = PrivateFiles::make(None).map_err(|_| CliError::Start)?;
    let cli = Cli::find(docker_path, docker_host.map(str::to_owned), Arc::new(private)).await?;
    Ok(Engine::new(cli, Disk::new(0)))
}
