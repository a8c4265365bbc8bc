//! The catalog: collections, their indexes, and the spaces that hold them.
//!
//! A catalog is an immutable value. A transaction changes its own copy, which replaces the engine's when it
//! commits; each collection is one stored document.

use std::{collections::BTreeMap, sync::Arc};

use bson::{Bson, Document, doc};
use imbl::OrdMap;
use parking_lot::Mutex;

use crate::{
    error::{Error, Result},
    path::Path,
    store::{Direction, Range, Reader, Space, Writer},
};

/// Space of the catalog itself.
const CATALOG_SPACE: Space = 0;
/// Space of the document counts.
const COUNTS_SPACE: Space = 1;
/// First space of collections and indexes.
const FIRST_SPACE: Space = 16;
/// Key of the next unused space. Sorts before every collection.
const NEXT_SPACE_KEY: &[u8] = b"!next_space";
const COLLECTION_PREFIX: &[u8] = b"collection/";

/// Most collections.
const COLLECTIONS_MAX: usize = 10_000;
/// Longest name of a collection, in bytes.
const NAME_LEN_MAX: usize = 255;
/// Most indexes of a collection.
pub(crate) const INDEXES_MAX: usize = 64;
/// Most fields of an index.
const INDEX_FIELDS_MAX: usize = 32;

/// Name of the implicit index on `_id`.
pub const ID_INDEX: &str = "_id_";

/// All collections.
#[derive(Debug, Clone)]
pub struct Catalog {
    collections: OrdMap<String, Arc<Collection>>,
    next_space: Space,
}

/// A collection.
#[derive(Debug, Clone)]
pub struct Collection {
    /// Full name.
    pub name: String,
    /// Space of the documents, by encoded `_id`.
    pub(crate) space: Space,
    /// Secondary indexes, in order of creation.
    pub indexes: Vec<Index>,
}

/// A secondary index.
#[derive(Debug, Clone)]
pub struct Index {
    /// Definition.
    pub spec: IndexSpec,
    /// Space of the entries: encoded fields and `_id`, with an empty value.
    pub(crate) space: Space,
    /// True once a document had an array on an indexed path.
    pub multikey: bool,
    /// State of the build.
    pub build: Build,
}

/// State of an index's build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Build {
    /// Complete; queries use it.
    Ready,
    /// Documents below `next` are indexed; writes maintain the index already.
    Building {
        /// Encoded `_id` to continue from.
        next: Vec<u8>,
        /// Documents indexed so far.
        indexed: u64,
    },
}

/// Definition of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexSpec {
    /// Name, unique within the collection.
    pub name: String,
    /// Indexed fields.
    pub fields: Vec<IndexField>,
    /// Forbid two documents with the same key.
    pub unique: bool,
    /// Leave out documents that have none of the fields.
    pub sparse: bool,
    /// Delete documents this many seconds after the date in the first field.
    pub expire_after_seconds: Option<u32>,
}

/// A field of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexField {
    /// Path of the field.
    pub path: Path,
    /// Order of the field.
    pub descending: bool,
}

/// Builds in the background that failed since the start, by the collection's space and the index's name. A failed index
/// is dropped, so this is the only record of the error.
pub(crate) type FailedBuilds = Mutex<BTreeMap<(Space, String), (IndexSpec, Error)>>;

impl IndexSpec {
    /// Builds a plain index from paths; a leading `-` means descending. The name is derived.
    pub fn on(paths: &[&str]) -> Result<Self> {
        let fields = paths
            .iter()
            .map(|path| match path.strip_prefix('-') {
                Some(path) => Ok(IndexField { path: Path::parse(path)?, descending: true }),
                None => Ok(IndexField { path: Path::parse(path)?, descending: false }),
            })
            .collect::<Result<Vec<_>>>()?;
        let mut spec =
            Self { name: String::new(), fields, unique: false, sparse: false, expire_after_seconds: None };
        spec.name = spec.default_name();
        Ok(spec)
    }

    /// Parses `{name, keys: {path: 1 | -1}, unique, sparse, expireAfterSeconds}`.
    pub fn from_document(document: &Document) -> Result<Self> {
        let keys = document.get_document("key").or_else(|_| document.get_document("keys"));
        let keys = keys.map_err(|_| Error::invalid("an index needs a document of keys"))?;
        let mut fields = Vec::with_capacity(keys.len());
        for (path, direction) in keys {
            let direction = match direction {
                Bson::Double(value) => *value as i64,
                other => crate::filter_integer(other).unwrap_or(0),
            };
            if direction == 0 {
                return Err(Error::invalid(format!("index type of {path:?} is not supported")));
            }
            fields.push(IndexField { path: Path::parse(path)?, descending: direction < 0 });
        }
        for refused in ["partialFilterExpression", "collation", "weights", "wildcardProjection"] {
            if document.contains_key(refused) {
                return Err(Error::invalid(format!("index option {refused} is not supported")));
            }
        }
        let expire_after_seconds = match document.get("expireAfterSeconds") {
            None => None,
            Some(value) => Some(
                crate::filter_integer(value)
                    .and_then(|seconds| u32::try_from(seconds).ok())
                    .ok_or_else(|| Error::invalid("expireAfterSeconds must be within 0 and 2^32"))?,
            ),
        };
        let mut spec = Self {
            name: document.get_str("name").unwrap_or_default().to_owned(),
            fields,
            unique: flag(document, "unique")?,
            sparse: flag(document, "sparse")?,
            expire_after_seconds,
        };
        if spec.name.is_empty() {
            spec.name = spec.default_name();
        }
        Ok(spec)
    }

    /// Returns the definition as a document, the inverse of [`IndexSpec::from_document`].
    pub fn to_document(&self) -> Document {
        let keys: Document = self
            .fields
            .iter()
            .map(|field| (field.path.to_string(), Bson::Int32(if field.descending { -1 } else { 1 })))
            .collect();
        let mut document = doc! { "v": 2, "key": keys, "name": &self.name };
        if self.unique {
            document.insert("unique", true);
        }
        if self.sparse {
            document.insert("sparse", true);
        }
        if let Some(seconds) = self.expire_after_seconds {
            document.insert("expireAfterSeconds", i64::from(seconds));
        }
        document
    }

    fn default_name(&self) -> String {
        let part = |field: &IndexField| format!("{}_{}", field.path, if field.descending { -1 } else { 1 });
        self.fields.iter().map(part).collect::<Vec<_>>().join("_")
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if self.fields.is_empty() || self.fields.len() > INDEX_FIELDS_MAX {
            return Err(Error::invalid(format!("an index has 1 to {INDEX_FIELDS_MAX} fields")));
        }
        if self.name.len() > NAME_LEN_MAX || self.name == "*" {
            return Err(Error::invalid("invalid index name"));
        }
        for (position, field) in self.fields.iter().enumerate() {
            if self.fields[..position].iter().any(|other| other.path == field.path) {
                return Err(Error::invalid(format!("index field {} is listed twice", field.path)));
            }
        }
        if self.expire_after_seconds.is_some() && self.fields.len() != 1 {
            return Err(Error::invalid("TTL indexes are single-field indexes"));
        }
        Ok(())
    }

    fn same_keys(&self, other: &Self) -> bool {
        self.fields == other.fields
    }
}

/// Returns an option that is true, false, or a number, as some clients write it.
fn flag(document: &Document, name: &str) -> Result<bool> {
    match document.get(name) {
        None | Some(Bson::Null) => Ok(false),
        Some(Bson::Boolean(value)) => Ok(*value),
        Some(value) => crate::filter_integer(value)
            .map(|value| value != 0)
            .ok_or_else(|| Error::invalid(format!("index option {name} must be true or false"))),
    }
}

impl Index {
    /// Returns true if queries may use the index.
    pub fn is_ready(&self) -> bool {
        self.build == Build::Ready
    }
}

impl Collection {
    /// Returns the position of an index, by name.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.indexes.iter().position(|index| index.spec.name == name)
    }

    /// Returns true if an index with the same definition exists, an error if one conflicts.
    pub(crate) fn check_new_index(&self, spec: &IndexSpec) -> Result<bool> {
        for index in &self.indexes {
            if index.spec == *spec {
                return Ok(true);
            }
            if index.spec.name == spec.name || index.spec.same_keys(spec) {
                return Err(Error::IndexConflict(index.spec.name.clone()));
            }
        }
        if self.indexes.len() >= INDEXES_MAX {
            return Err(Error::TooLarge(format!("a collection has at most {INDEXES_MAX} indexes")));
        }
        Ok(false)
    }

    fn to_document(&self) -> Document {
        let indexes: Vec<Bson> = self
            .indexes
            .iter()
            .map(|index| {
                let mut document = doc! {
                    "spec": index.spec.to_document(),
                    "space": i64::from(index.space),
                    "multikey": index.multikey,
                };
                if let Build::Building { next, indexed } = &index.build {
                    let next =
                        bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: next.clone() };
                    document.insert("building", doc! { "next": next, "indexed": *indexed as i64 });
                }
                Bson::Document(document)
            })
            .collect();
        doc! { "name": &self.name, "space": i64::from(self.space), "indexes": indexes }
    }

    fn from_document(document: &Document) -> Result<Self> {
        let indexes = document.get_array("indexes").map_err(Error::corrupt)?;
        let index = |value: &Bson| -> Result<Index> {
            let document = value.as_document().ok_or_else(|| Error::corrupt("an index in the catalog"))?;
            let spec = IndexSpec::from_document(document.get_document("spec").map_err(Error::corrupt)?)?;
            let build = match document.get_document("building") {
                Ok(building) => Build::Building {
                    next: building.get_binary_generic("next").map_err(Error::corrupt)?.clone(),
                    indexed: building.get_i64("indexed").map_err(Error::corrupt)? as u64,
                },
                Err(_) => Build::Ready,
            };
            let multikey = document.get_bool("multikey").map_err(Error::corrupt)?;
            Ok(Index { spec, space: space_of(document)?, multikey, build })
        };
        Ok(Self {
            name: document.get_str("name").map_err(Error::corrupt)?.to_owned(),
            space: space_of(document)?,
            indexes: indexes.iter().map(index).collect::<Result<_>>()?,
        })
    }
}

fn space_of(document: &Document) -> Result<Space> {
    let space = document.get_i64("space").map_err(Error::corrupt)?;
    Space::try_from(space).map_err(Error::corrupt)
}

impl Catalog {
    pub(crate) fn load(reader: &dyn Reader) -> Result<Self> {
        let next_space = match reader.get(CATALOG_SPACE, NEXT_SPACE_KEY)? {
            Some(bytes) => Space::from_be_bytes(bytes.as_ref().try_into().map_err(Error::corrupt)?),
            None => FIRST_SPACE,
        };
        let mut collections = OrdMap::new();
        let mut cursor =
            reader.cursor(CATALOG_SPACE, &Range::prefix(COLLECTION_PREFIX), Direction::Forward)?;
        while cursor.advance()? {
            let document = Document::from_reader(cursor.value()).map_err(Error::corrupt)?;
            let collection = Collection::from_document(&document)?;
            collections.insert(collection.name.clone(), Arc::new(collection));
        }
        Ok(Self { collections, next_space })
    }

    /// Returns a collection by name.
    pub fn get(&self, name: &str) -> Result<&Arc<Collection>> {
        self.collections.get(name).ok_or_else(|| Error::NoCollection(name.to_owned()))
    }

    /// Returns every collection, by name.
    pub fn collections(&self) -> impl Iterator<Item = &Arc<Collection>> {
        self.collections.values()
    }

    pub(crate) fn allocate_space(&mut self, writer: &mut dyn Writer) -> Result<Space> {
        let space = self.next_space;
        self.next_space = space.checked_add(1).ok_or_else(|| Error::Store("no space is left".to_owned()))?;
        writer.put(CATALOG_SPACE, NEXT_SPACE_KEY, &self.next_space.to_be_bytes());
        Ok(space)
    }

    pub(crate) fn create(&mut self, writer: &mut dyn Writer, name: &str) -> Result<()> {
        validate_name(name)?;
        if self.collections.contains_key(name) {
            return Err(Error::CollectionExists(name.to_owned()));
        }
        if self.collections.len() >= COLLECTIONS_MAX {
            return Err(Error::TooLarge(format!("at most {COLLECTIONS_MAX} collections")));
        }
        let space = self.allocate_space(writer)?;
        self.put(writer, Collection { name: name.to_owned(), space, indexes: Vec::new() })
    }

    pub(crate) fn put(&mut self, writer: &mut dyn Writer, collection: Collection) -> Result<()> {
        let bytes = collection.to_document().to_vec().map_err(|error| Error::invalid(error.to_string()))?;
        writer.put(CATALOG_SPACE, &collection_key(&collection.name), &bytes);
        self.collections.insert(collection.name.clone(), Arc::new(collection));
        Ok(())
    }

    pub(crate) fn drop(&mut self, writer: &mut dyn Writer, name: &str) -> Result<()> {
        let collection = self.collections.remove(name).ok_or_else(|| Error::NoCollection(name.to_owned()))?;
        writer.delete(CATALOG_SPACE, &collection_key(name));
        writer.delete(COUNTS_SPACE, &collection.space.to_be_bytes());
        writer.drop_space(collection.space);
        for index in &collection.indexes {
            writer.drop_space(index.space);
        }
        Ok(())
    }
}

fn collection_key(name: &str) -> Vec<u8> {
    [COLLECTION_PREFIX, name.as_bytes()].concat()
}

fn validate_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_LEN_MAX {
        return Err(Error::invalid(format!("a collection's name has 1 to {NAME_LEN_MAX} bytes")));
    }
    if name.contains(['\0', '$']) || name.starts_with('.') || name.ends_with('.') {
        return Err(Error::invalid(format!("invalid collection name: {name:?}")));
    }
    Ok(())
}

/// Returns the number of documents in a collection.
pub(crate) fn count(reader: &dyn Reader, collection: &Collection) -> Result<u64> {
    match reader.get(COUNTS_SPACE, &collection.space.to_be_bytes())? {
        Some(bytes) => Ok(u64::from_le_bytes(bytes.as_ref().try_into().map_err(Error::corrupt)?)),
        None => Ok(0),
    }
}

pub(crate) fn adjust_count(writer: &mut dyn Writer, space: Space, change: i64) -> Result<()> {
    let key = space.to_be_bytes();
    let old = match writer.get(COUNTS_SPACE, &key)? {
        Some(bytes) => u64::from_le_bytes(bytes.as_ref().try_into().map_err(Error::corrupt)?),
        None => 0,
    };
    writer.put(COUNTS_SPACE, &key, &old.saturating_add_signed(change).to_le_bytes());
    Ok(())
}
