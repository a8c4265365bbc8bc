//! Conversion of built-in kinds that are served in one version and stored in another.

use orlop_api::{
    apply::{ConversionError, TypeRef, VersionConverter},
    group_version::GroupVersion,
    schema::builtin::{self, TypeEntry},
};
use serde_json::Value;

/// Declares a version of a kind whose objects are stored in another version, or in another group.
#[derive(Debug)]
pub struct Conversion {
    /// Version that is served but not stored.
    pub version: &'static str,
    /// Kind, in both versions.
    pub kind: &'static str,
    /// Group and version of the storage version; its resource name is the same.
    pub storage: (&'static str, &'static str),
    /// Converts a stored object to the served version; `None` if it has another shape.
    pub to_served: fn(Value) -> Option<Value>,
    /// Converts a served object to the storage version.
    pub to_storage: fn(Value) -> Option<Value>,
    /// Maps a selectable field to the field it is indexed under.
    pub index_field: fn(&str) -> String,
}

/// Converter between the served and the storage version of a built-in kind. Field managers may own fields in
/// either version.
#[derive(Debug)]
pub struct BuiltinConverter {
    conversion: &'static Conversion,
    served: VersionedType,
    storage: VersionedType,
}

/// A version and its type.
#[derive(Debug)]
struct VersionedType {
    api_version: String,
    entry: &'static TypeEntry,
}

impl VersionedType {
    fn new(group: &str, version: &str, kind: &str) -> Option<Self> {
        let api_version = GroupVersion::new(group, version).to_string();
        Some(Self { api_version, entry: builtin::type_of(group, version, kind)? })
    }
}

impl BuiltinConverter {
    /// Returns the converter of a kind in a group.
    pub(crate) fn new(group: &str, conversion: &'static Conversion) -> Option<Self> {
        let (storage_group, storage_version) = conversion.storage;
        Some(Self {
            conversion,
            served: VersionedType::new(group, conversion.version, conversion.kind)?,
            storage: VersionedType::new(storage_group, storage_version, conversion.kind)?,
        })
    }

    /// Returns group and version of the storage version.
    pub fn storage_version(&self) -> (&'static str, &'static str) {
        self.conversion.storage
    }

    /// Returns the apiVersions of the served and of the storage version.
    pub fn api_versions(&self) -> [&str; 2] {
        [&self.served.api_version, &self.storage.api_version]
    }

    /// Converts a stored object to the served version.
    pub fn to_served(&self, object: Value) -> Result<Value, ConversionError> {
        (self.conversion.to_served)(object).ok_or_else(|| self.failure())
    }

    /// Converts a served object to the storage version.
    pub fn to_storage(&self, object: Value) -> Result<Value, ConversionError> {
        (self.conversion.to_storage)(object).ok_or_else(|| self.failure())
    }

    /// Maps a selectable field of the served version to the field it is indexed under.
    pub fn index_field(&self, field: &str) -> String {
        (self.conversion.index_field)(field)
    }

    fn failure(&self) -> ConversionError {
        let [served, storage] = self.api_versions();
        let kind = self.conversion.kind;
        ConversionError::Failed(format!("a {kind} cannot be converted between {served} and {storage}"))
    }
}

impl VersionConverter for BuiltinConverter {
    fn type_of(&self, api_version: &str) -> Option<TypeRef<'_>> {
        let versions = [&self.served, &self.storage];
        let version = versions.into_iter().find(|version| version.api_version == api_version)?;
        Some(TypeRef::resource(version.entry.schema()))
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ConversionError> {
        let [served, storage] = self.api_versions();
        let object = object.clone();
        match api_version {
            version if object["apiVersion"] == version => Ok(object),
            version if version == served => self.to_served(object),
            version if version == storage => self.to_storage(object),
            _ => Err(ConversionError::MissingVersion(api_version.to_owned())),
        }
    }
}
