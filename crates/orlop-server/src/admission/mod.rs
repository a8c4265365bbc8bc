//! Admission plugins: change or refuse writes after authorization and before storage. Built-in plugins,
//! policies and webhooks share one interface.

use std::fmt;

use async_trait::async_trait;
use orlop_api::{group_version::GroupVersionKind, status::Status};
use serde_json::Value;

use crate::{http::warnings::Warnings, request::Attributes};

/// The operation that is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change of an object: update, patch or apply.
    Update,
    /// A deletion. There is no new object.
    Delete,
    /// A connection, such as exec. The object is its options.
    Connect,
}

impl Operation {
    /// Returns the name in AdmissionReview, such as `CREATE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// A write that is admitted.
#[derive(Debug)]
pub struct AdmissionRequest<'a> {
    /// The operation.
    pub operation: Operation,
    /// The user, resource, subresource, namespace and name.
    pub attributes: &'a Attributes,
    /// The kind of the object.
    pub kind: &'a GroupVersionKind,
    /// CreateOptions, UpdateOptions, PatchOptions or DeleteOptions.
    pub options: Value,
    /// True if nothing is stored.
    pub dry_run: bool,
    /// Warnings for the client.
    pub warnings: &'a Warnings,
}

/// An admission plugin.
#[async_trait]
pub trait Admission: fmt::Debug + Send + Sync {
    /// Changes an object before it is validated. `old` is absent on create. Managed fields have been
    /// recorded by then: fields that a plugin sets have no owner.
    async fn mutate(
        &self,
        _request: &AdmissionRequest<'_>,
        _object: &mut Value,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        Ok(())
    }

    /// Refuses a write. `object` is what would be stored, and absent on delete; `old` is absent on create.
    async fn validate(
        &self,
        _request: &AdmissionRequest<'_>,
        _object: Option<&Value>,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        Ok(())
    }
}
