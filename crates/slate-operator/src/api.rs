//! The kinds `Server` and `Collection` of `slate.io/v1`.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{Condition, ObjectMeta},
};
use serde::{Deserialize, Serialize};

/// API group.
pub const GROUP: &str = "slate.io";
/// Version of the kinds.
pub const VERSION: &str = "v1";
/// Group and version.
pub const API_VERSION: &str = "slate.io/v1";
/// Port of Slate's protocol.
pub const PORT: i32 = 9600;
/// Port of MongoDB's protocol.
pub const MONGO_PORT: i32 = 27017;

/// A database instance.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Server {
    /// Always `slate.io/v1`.
    #[serde(default = "api_version")]
    pub api_version: String,
    /// Always `Server`.
    #[serde(default = "server_kind")]
    pub kind: String,
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Desired state.
    pub spec: ServerSpec,
    /// Observed state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ServerStatus>,
}

/// Desired state of a Server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerSpec {
    /// Storage backend.
    pub store: StoreKind,
    /// Image of slate-server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Resource requests and limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Volume of the rocks store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// Protection of the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security: Option<Security>,
    /// MongoDB's wire protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mongo: Option<Mongo>,
}

/// Storage backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// In memory.
    Memory,
    /// RocksDB on a volume.
    Rocks,
}

impl StoreKind {
    /// Returns the name that `slate-server` knows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Rocks => "rocks",
        }
    }
}

/// Resource requests and limits.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Resources {
    /// Requests.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
    /// Limits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Quantity>,
}

/// Volume of the rocks store.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Storage class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// Deletion policy of the volume.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// Protection of the port.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Security {
    /// Require a token.
    #[serde(default)]
    pub token: bool,
    /// Serve TLS.
    #[serde(default)]
    pub tls: bool,
}

/// MongoDB's wire protocol.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Mongo {
    /// Serve it.
    #[serde(default)]
    pub enabled: bool,
}

/// Deletion policy of data whose object is deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeletionPolicy {
    /// Deleted with it.
    #[default]
    Delete,
    /// Kept.
    Retain,
}

/// Observed state of a Server.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Lifecycle phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Generation that was last fully rolled out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_generation: Option<i64>,
    /// State of the server, or what is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Generation that was last reconciled.
    #[serde(default, rename = "observedGeneration", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Id of the server's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Lifecycle phase of a Server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The pod is starting or being replaced.
    Rollout,
    /// The pod serves.
    Ready,
    /// The pod cannot start.
    Error,
}

/// A document store and its indexes on a Server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Collection {
    /// Always `slate.io/v1`.
    #[serde(default = "api_version")]
    pub api_version: String,
    /// Always `Collection`.
    #[serde(default = "collection_kind")]
    pub kind: String,
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Desired state.
    pub spec: CollectionSpec,
    /// Observed state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<CollectionStatus>,
}

/// Desired state of a Collection.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CollectionSpec {
    /// Name of a Server in the same namespace.
    pub server: String,
    /// Fields to index.
    #[serde(default)]
    pub indexes: Vec<String>,
    /// Deletion policy of the data.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// Observed state of a Collection.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CollectionStatus {
    /// The Server's `ready_generation` that was last reconciled against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_generation: Option<i64>,
    /// Generation of the Collection that was last reconciled.
    #[serde(default, rename = "observedGeneration", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Boot id of the server that was last reconciled against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Number of documents when last reconciled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<i64>,
    /// Ready indexes of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indexes: Option<String>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

fn api_version() -> String {
    API_VERSION.to_owned()
}

fn server_kind() -> String {
    "Server".to_owned()
}

fn collection_kind() -> String {
    "Collection".to_owned()
}

macro_rules! resource {
    ($kind:ident, $name:literal, $plural:literal) => {
        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = k8s_openapi::NamespaceResourceScope;

            fn kind(_: &()) -> Cow<'_, str> {
                $name.into()
            }

            fn group(_: &()) -> Cow<'_, str> {
                GROUP.into()
            }

            fn version(_: &()) -> Cow<'_, str> {
                VERSION.into()
            }

            fn plural(_: &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

resource!(Server, "Server", "servers");
resource!(Collection, "Collection", "collections");

impl Server {
    /// Returns the phase, if one has been set.
    pub fn phase(&self) -> Option<Phase> {
        self.status.as_ref().and_then(|status| status.phase)
    }

    pub(crate) fn security(&self) -> Security {
        self.spec.security.unwrap_or_default()
    }

    pub(crate) fn serves_mongo(&self) -> bool {
        self.spec.mongo.unwrap_or_default().enabled
    }
}
