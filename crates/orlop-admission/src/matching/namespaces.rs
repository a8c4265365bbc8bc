//! Labels of namespaces, from memory.

use std::sync::Arc;

use async_trait::async_trait;
use orlop_api::{group_version::GroupResource, status::Status};
use serde_json::{Map, Value};

use super::NamespaceLabels;
use crate::listers::{Listers, NAMESPACES};

/// Namespaces as the listers know them.
#[derive(Clone, Debug)]
pub struct ListedNamespaces(Arc<dyn Listers>);

impl ListedNamespaces {
    /// Returns the namespaces of listers.
    pub fn new(listers: Arc<dyn Listers>) -> Self {
        Self(listers)
    }

    /// Returns a namespace; NotFound if there is none. One that is not in memory may be new: then it is read.
    pub async fn get(&self, name: &str) -> Result<Arc<Value>, Status> {
        if let Some(found) = self.0.list(NAMESPACES).await?.get("", name) {
            return Ok(found.clone());
        }
        let found = self.0.get(NAMESPACES, "", name).await?;
        found.ok_or_else(|| Status::not_found(&GroupResource::new("", "namespaces"), name))
    }
}

#[async_trait]
impl NamespaceLabels for ListedNamespaces {
    async fn labels(&self, namespace: &str) -> Result<Map<String, Value>, Status> {
        let found = self.get(namespace).await?;
        Ok(found.pointer("/metadata/labels").and_then(Value::as_object).cloned().unwrap_or_default())
    }
}
