//! Built-in kinds that are another's objects in another form.

mod autoscaler;
mod event;

use std::sync::Arc;

use async_trait::async_trait;
use orlop_api::{
    apply::{ConversionError, TypeRef, Versions},
    group_version::GroupVersion,
    schema::builtin::{self, TypeEntry},
    status::Status,
};
use serde_json::Value;

use crate::registry::Convert;

pub(crate) use autoscaler::METRICS;

/// What a kind is served as, what it is kept as, and the way between the two.
struct Translation {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    /// The group and version of the kind that stores its objects; its names are the same.
    stored: (&'static str, &'static str),
    /// A stored object as it is served; `None` where it is not one.
    to_served: fn(Value) -> Option<Value>,
    /// The same back.
    to_stored: fn(Value) -> Option<Value>,
    /// What a selectable field is called in the index.
    indexed_as: fn(&str) -> String,
}

const TRANSLATIONS: &[Translation] = &[autoscaler::FIRST_VERSION, event::NEW_API];

/// The two forms of a built-in kind's objects. Fields may be owned in either.
pub(crate) struct Forms {
    translation: &'static Translation,
    served: Form,
    stored: Form,
}

/// A form: the version it is written in, and its type.
struct Form {
    api_version: String,
    entry: &'static TypeEntry,
}

impl Form {
    fn of((group, version): (&str, &str), kind: &str) -> Option<Self> {
        let api_version = GroupVersion::new(group, version).to_string();
        Some(Self { api_version, entry: builtin::type_of(group, version, kind)? })
    }
}

/// The forms of a built-in kind's objects, where it is another's.
pub(crate) fn forms(group: &str, version: &str, plural: &str) -> Option<Arc<Forms>> {
    let asked =
        |known: &&Translation| known.group == group && known.version == version && known.plural == plural;
    let translation = TRANSLATIONS.iter().find(asked)?;
    let served = Form::of((group, version), translation.kind)?;
    let stored = Form::of(translation.stored, translation.kind)?;
    Some(Arc::new(Forms { translation, served, stored }))
}

impl Forms {
    /// The group and version of the kind that stores the objects.
    pub(crate) fn stored_in(&self) -> (&'static str, &'static str) {
        self.translation.stored
    }

    /// The versions that objects are written in: as served, and as stored.
    pub(crate) fn api_versions(&self) -> [&str; 2] {
        [&self.served.api_version, &self.stored.api_version]
    }

    fn to_served(&self, object: Value) -> Result<Value, String> {
        (self.translation.to_served)(object).ok_or_else(|| self.failure())
    }

    fn to_stored(&self, object: Value) -> Result<Value, String> {
        (self.translation.to_stored)(object).ok_or_else(|| self.failure())
    }

    fn failure(&self) -> String {
        let [served, stored] = self.api_versions();
        format!("a {} cannot be converted between {served} and {stored}", self.translation.kind)
    }
}

#[async_trait]
impl Convert for Forms {
    async fn served(&self, objects: Vec<Value>) -> Result<Vec<Value>, Status> {
        let served = objects.into_iter().map(|object| self.to_served(object));
        served.collect::<Result<_, _>>().map_err(|why| Status::internal(&why))
    }

    async fn stored(&self, object: Value) -> Result<Value, Status> {
        self.to_stored(object).map_err(|why| Status::internal(&why))
    }

    fn indexed_as(&self, field: &str) -> Option<String> {
        Some((self.translation.indexed_as)(field))
    }
}

impl Versions for Forms {
    fn type_of(&self, api_version: &str) -> Option<TypeRef<'_>> {
        let form = [&self.served, &self.stored].into_iter().find(|form| form.api_version == api_version)?;
        Some(TypeRef::resource(form.entry.schema()))
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ConversionError> {
        let [served, stored] = self.api_versions();
        let object = object.clone();
        let converted = match api_version {
            version if object["apiVersion"] == version => Ok(object),
            version if version == served => self.to_served(object),
            version if version == stored => self.to_stored(object),
            _ => return Err(ConversionError::MissingVersion(api_version.to_owned())),
        };
        converted.map_err(ConversionError::Failed)
    }
}
