//! What the engine holds with our log's label, and its removal.

use async_trait::async_trait;
use events::event::service::OrphanKind;
use events::ids::EnvironmentId;
use serde::Deserialize;

use super::cli_error::CliError;
use super::{ContainerAdapter, Inner, labels};
use crate::naming;
use crate::ports::{Inventory, ObservedObject, PortError};

/// One line of the client's listings; the three kinds name the name differently.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    #[serde(alias = "Names")]
    name: String,
    #[serde(default)]
    labels: String,
    #[serde(default)]
    state: String,
}

impl Inner {
    /// Everything of this log, or of one environment of it.
    pub(super) async fn observed(
        &self,
        environment_id: Option<EnvironmentId>,
    ) -> Result<Vec<ObservedObject>, PortError> {
        let mut filters =
            vec!["--filter".to_owned(), format!("label={}={}", labels::LOG, self.config.log_id)];
        if let Some(id) = environment_id {
            filters.extend(["--filter".to_owned(), format!("label={}={id}", labels::ENVIRONMENT)]);
        }
        let list = |kind, command: &[&str]| {
            let mut arguments: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
            arguments.extend(filters.iter().cloned());
            arguments.extend(["--format".to_owned(), "{{json .}}".to_owned()]);
            self.listed(kind, arguments)
        };
        let (containers, volumes, networks) = tokio::try_join!(
            list(OrphanKind::Container, &["container", "ls", "--all", "--no-trunc"]),
            list(OrphanKind::Volume, &["volume", "ls"]),
            list(OrphanKind::Network, &["network", "ls", "--no-trunc"]),
        )
        .map_err(CliError::to_port)?;
        Ok([containers, volumes, networks].concat())
    }

    async fn listed(
        &self,
        kind: OrphanKind,
        arguments: Vec<String>,
    ) -> Result<Vec<ObservedObject>, CliError> {
        let text = self.engine.cli.text(arguments).await?;
        text.lines().map(|line| observed(kind, line)).collect()
    }

    pub(super) async fn remove_object(&self, object: &ObservedObject) -> Result<(), PortError> {
        if !object.name.starts_with(naming::PREFIX) {
            return Err(PortError::Rejected { code: "foreign_object" });
        }
        match object.kind {
            OrphanKind::Container => self.engine.remove_container(&object.name).await,
            OrphanKind::Volume => self.remove_volume(object.environment_id, &object.name).await,
            OrphanKind::Network => self.engine.remove_network(&object.name).await,
            OrphanKind::Object => return Err(PortError::Rejected { code: "foreign_object" }),
        }
        .map_err(CliError::to_port)
    }
}

fn observed(kind: OrphanKind, line: &str) -> Result<ObservedObject, CliError> {
    let listed: Listed = serde_json::from_str(line).map_err(|_| CliError::Other)?;
    let labels = labels::parse(&listed.labels);
    let label = |name| labels.get(name).copied();
    Ok(ObservedObject {
        kind,
        environment_id: label(labels::ENVIRONMENT).and_then(|value| value.parse().ok()),
        created_at: label(labels::CREATED).and_then(|value| value.parse().ok()),
        hard_deadline: label(labels::HARD_DEADLINE).and_then(|value| value.parse().ok()),
        running: listed.state == "running",
        name: listed.name,
    })
}

#[async_trait]
impl Inventory for ContainerAdapter {
    async fn list(&self) -> Result<Vec<ObservedObject>, PortError> {
        self.inner.observed(None).await
    }

    async fn remove(&self, object: &ObservedObject) -> Result<(), PortError> {
        let (inner, object) = (std::sync::Arc::clone(&self.inner), object.clone());
        super::finished("orphan removal", async move { inner.remove_object(&object).await }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_of_all_three_kinds_are_read() {
        let container = r#"{"Command":"\"x\"","CreatedAt":"2026-01-01 00:00:00 +0000 UTC","ID":"ab",
            "Labels":"leasehold.environment=00000000-0000-0000-0000-000000000007,leasehold.created=2026-01-02T03:04:05.000006Z",
            "Names":"leasehold-x-sandbox","State":"running","Status":"Up 2 seconds"}"#;
        let seen = observed(OrphanKind::Container, container).unwrap();
        assert_eq!(seen.name, "leasehold-x-sandbox");
        assert_eq!(seen.environment_id.map(|id| id.as_uuid().as_u128()), Some(7));
        assert_eq!(
            seen.created_at.map(|time| time.to_string()).as_deref(),
            Some("2026-01-02T03:04:05.000006Z")
        );
        assert!(seen.running && seen.hard_deadline.is_none());

        let volume = r#"{"Driver":"local","Labels":"","Mountpoint":"/x","Name":"leasehold-x-workspace"}"#;
        let seen = observed(OrphanKind::Volume, volume).unwrap();
        assert_eq!((seen.environment_id, seen.created_at, seen.running), (None, None, false));
    }
}
