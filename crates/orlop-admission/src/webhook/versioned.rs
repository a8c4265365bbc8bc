//! The objects of a request in the versions that webhooks ask for.

use std::borrow::Cow;

use orlop_api::{group_version::GroupVersionKind, status::Status};
use serde_json::Value;

use crate::matching::ObjectInterfaces;

/// The objects of a request in one version.
#[derive(Clone, Debug)]
pub(crate) struct Versioned<'a> {
    pub(crate) kind: GroupVersionKind,
    pub(crate) object: Option<Cow<'a, Value>>,
    pub(crate) old: Option<Cow<'a, Value>>,
}

impl<'a> Versioned<'a> {
    /// Returns the objects of a request in its own version.
    pub(crate) fn new(kind: &GroupVersionKind, object: Option<&'a Value>, old: Option<&'a Value>) -> Self {
        Self { kind: kind.clone(), object: object.map(Cow::Borrowed), old: old.map(Cow::Borrowed) }
    }

    /// Returns the objects, new and old.
    pub(crate) fn objects(&self) -> (Option<&Value>, Option<&Value>) {
        (self.object.as_deref(), self.old.as_deref())
    }

    /// Converts the objects to another version.
    pub(crate) async fn convert(
        self,
        interfaces: &dyn ObjectInterfaces,
        kind: &GroupVersionKind,
    ) -> Result<Versioned<'a>, Status> {
        if self.kind == *kind {
            return Ok(self);
        }
        let convert = async |object: Option<Cow<'a, Value>>| match object {
            None => Ok(None),
            Some(object) => {
                let converted = interfaces.convert(object.into_owned(), kind).await;
                converted.map(|object| Some(Cow::Owned(object))).map_err(|why| Status::internal(&why.message))
            }
        };
        Ok(Self { kind: kind.clone(), object: convert(self.object).await?, old: convert(self.old).await? })
    }
}
