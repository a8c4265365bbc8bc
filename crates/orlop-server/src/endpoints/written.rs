//! Result of a write.

use http::Response;
use orlop_api::status::Status;
use orlop_store::Revision;
use serde_json::Value;

use super::{Request, answer};
use crate::object::metadata_mut;
use crate::{
    http::body::Body,
    registry::{Encoded, Found, Kind},
};

/// The object that a write stored, or would have stored.
pub(crate) enum Written {
    /// In the stored version.
    Stored(Found),
    /// In the served version, if that is another or nothing was stored.
    Object(Value),
}

impl Written {
    /// Returns what was written at a revision.
    pub(super) fn of(kind: &Kind, encoded: Encoded, object: &Value, revision: Revision) -> Self {
        // Of a custom resource that was converted, the client is shown what it will read.
        if kind.storage.is_own() || kind.flags.custom {
            return Self::Stored(Found { bytes: encoded.bytes, revision, stale: false });
        }
        let mut object = object.clone();
        metadata_mut(&mut object).insert("resourceVersion".into(), revision.to_string().into());
        Self::Object(object)
    }

    /// Returns the object in the served version.
    pub(crate) async fn into_object(self, kind: &Kind) -> Result<Value, Status> {
        match self {
            Self::Stored(found) => kind.read(&found).await,
            Self::Object(object) => Ok(object),
        }
    }

    /// Responds with it.
    pub(super) async fn answer(&self, request: &Request, code: u16) -> Result<Response<Body>, Status> {
        match self {
            Self::Stored(found) => answer::stored_object(request, code, found).await,
            Self::Object(object) => answer::object(request, code, object.clone()),
        }
    }
}
