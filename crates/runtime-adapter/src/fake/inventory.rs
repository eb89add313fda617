//! The objects that the fake would have: two containers and a volume per environment, and whatever was planted.

use async_trait::async_trait;
use events::event::service::OrphanKind;

use super::FakeAdapter;
use crate::naming;
use crate::ports::{Inventory, ObservedObject, PortError};

#[async_trait]
impl Inventory for FakeAdapter {
    async fn list(&self) -> Result<Vec<ObservedObject>, PortError> {
        self.faults.check_outage()?;
        let mut objects = self.planted().clone();
        for environment in self.environments().values() {
            let id = environment.handle.environment_id;
            for (kind, name) in [
                (OrphanKind::Container, naming::sandbox_container(id)),
                (OrphanKind::Container, naming::files_container(id)),
                (OrphanKind::Volume, naming::workspace_volume(id)),
            ] {
                objects.push(ObservedObject {
                    kind,
                    name,
                    environment_id: Some(id),
                    created_at: Some(environment.handle.created_at),
                    hard_deadline: Some(environment.handle.expires_at),
                    running: kind == OrphanKind::Container && environment.lost().is_none(),
                });
            }
        }
        objects.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(objects)
    }

    async fn remove(&self, object: &ObservedObject) -> Result<(), PortError> {
        self.faults.before_destroy().await?;
        self.planted().retain(|planted| planted.name != object.name);
        if let Some(environment_id) = object.environment_id {
            self.remove_environment(environment_id);
        }
        Ok(())
    }
}
