//! Commands about databases, collections and indexes.

use std::collections::BTreeSet;

use bson::{Bson, Document, RawDocumentBuf, doc, raw::cstr};
use slate::{Error, IndexSpec};

use super::{Command, Reply, document, flag, read, write::create_if_missing};
use crate::{
    cursors::FirstBatch,
    mongo::error::{CommandError, Result},
};

pub(super) fn build_info() -> Reply {
    Reply::Document(doc! {
        // The server whose commands are understood; drivers look at it.
        "version": "7.0.0",
        "versionArray": [7, 0, 0, 0],
        "gitVersion": "slate",
        "modules": ["slate"],
        "bits": 64,
        "maxBsonObjectSize": slate::document::DOCUMENT_LEN_MAX as i32,
    })
}

pub(super) fn connection_status() -> Reply {
    Reply::Document(doc! { "authInfo": { "authenticatedUsers": [], "authenticatedUserRoles": [] } })
}

impl Command<'_> {
    /// Returns the names of this database's collections.
    fn collections(&self) -> Vec<String> {
        let prefix = format!("{}.", self.database);
        let catalog = self.context.engine.catalog();
        catalog
            .collections()
            .filter_map(|collection| collection.name.strip_prefix(&prefix).map(str::to_owned))
            .collect()
    }

    pub(super) fn list_databases(self) -> Result<Reply> {
        let catalog = self.context.engine.catalog();
        let names: BTreeSet<String> = catalog
            .collections()
            .filter_map(|collection| collection.name.split_once('.').map(|(database, _)| database.to_owned()))
            .collect();
        let databases: Vec<Bson> = names
            .iter()
            .map(|name| doc! { "name": name, "sizeOnDisk": 0_i64, "empty": false }.into())
            .collect();
        let size = self.context.engine.size_bytes().cast_signed();
        Ok(Reply::Document(doc! { "databases": databases, "totalSize": size }))
    }

    pub(super) fn list_collections(self) -> Result<Reply> {
        let filter = slate::Filter::parse(&self.document("filter")?)?;
        let describe = |name: &String| {
            let description = doc! {
                "name": name,
                "type": "collection",
                "options": {},
                "info": { "readOnly": false },
                "idIndex": { "v": 2, "key": { "_id": 1 }, "name": slate::ID_INDEX },
            };
            RawDocumentBuf::try_from(&description).map_err(|error| CommandError::bad_value(error.to_string()))
        };
        let documents = self.collections().iter().map(describe).collect::<Result<Vec<_>>>()?;
        let documents = documents.into_iter().filter(|document| filter.matches(document)).collect();
        let namespace = format!("{}.$cmd.listCollections", self.database);
        Ok(read::cursor_reply(&namespace, cstr!("firstBatch"), &FirstBatch { documents, cursor: 0 }))
    }

    pub(super) fn create(self) -> Result<Reply> {
        for refused in ["capped", "timeseries", "viewOn", "validator", "collation"] {
            if flag(self.body(), refused, self.body().contains_key(refused)) {
                return Err(CommandError::bad_value(format!("{refused} is not supported")));
            }
        }
        self.context.engine.create_collection(&self.namespace()?)?;
        Ok(Reply::Document(Document::new()))
    }

    pub(super) fn drop(self) -> Result<Reply> {
        let namespace = self.namespace()?;
        match self.context.engine.drop_collection(&namespace) {
            // Dropping what does not exist is no error since MongoDB 7.
            Ok(()) | Err(Error::NoCollection(_)) => Ok(Reply::Document(doc! { "ns": namespace })),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn drop_database(self) -> Result<Reply> {
        let names: Vec<String> =
            self.collections().iter().map(|name| format!("{}.{name}", self.database)).collect();
        self.context.engine.write(move |transaction| {
            for name in &names {
                match transaction.drop_collection(name) {
                    Ok(()) | Err(Error::NoCollection(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })?;
        Ok(Reply::Document(doc! { "dropped": self.database }))
    }

    pub(super) fn create_indexes(self) -> Result<Reply> {
        let namespace = self.namespace()?;
        let indexes = self.body().get_array("indexes").cloned();
        let indexes = indexes.map_err(|_| CommandError::bad_value("createIndexes needs indexes"))?;
        let specs = indexes
            .iter()
            .map(|index| match index {
                Bson::Document(index) => Ok(IndexSpec::from_document(index)?),
                _ => Err(CommandError::bad_value("an index must be a document")),
            })
            .collect::<Result<Vec<_>>>()?;
        let engine = &self.context.engine;
        let (created, name) = (engine.collection(&namespace).is_err(), namespace.clone());
        engine.write(move |transaction| create_if_missing(transaction, &name))?;
        let before = engine.collection(&namespace)?.indexes.len() + 1;
        for spec in specs {
            let on_id = matches!(spec.fields.as_slice(), [field] if field.path.is_id());
            if !on_id {
                engine.create_index(&namespace, spec)?;
            }
        }
        let after = engine.collection(&namespace)?.indexes.len() + 1;
        Ok(Reply::Document(doc! {
            "numIndexesBefore": before as i32,
            "numIndexesAfter": after as i32,
            "createdCollectionAutomatically": created,
        }))
    }

    pub(super) fn list_indexes(self) -> Result<Reply> {
        let namespace = self.namespace()?;
        let describe = |index: &slate::IndexStatus| {
            let mut description = index.to_document();
            if !index.ready {
                description.insert(
                    "buildProgress",
                    doc! { "indexed": index.indexed as i64, "total": index.total as i64 },
                );
            }
            RawDocumentBuf::try_from(&description).map_err(|error| CommandError::bad_value(error.to_string()))
        };
        let indexes = self.context.engine.indexes(&namespace)?;
        let documents = indexes.iter().map(describe).collect::<Result<_>>()?;
        Ok(read::cursor_reply(&namespace, cstr!("firstBatch"), &FirstBatch { documents, cursor: 0 }))
    }

    pub(super) fn drop_indexes(self) -> Result<Reply> {
        let namespace = self.namespace()?;
        let collection = self.context.engine.collection(&namespace)?;
        let named = match self.body().get("index") {
            Some(Bson::String(name)) if name == "*" => {
                collection.indexes.iter().map(|index| index.spec.name.clone()).collect()
            }
            Some(Bson::String(name)) => vec![name.clone()],
            Some(Bson::Array(names)) => {
                names.iter().filter_map(Bson::as_str).map(str::to_owned).collect::<Vec<_>>()
            }
            Some(Bson::Document(_)) => {
                let keys = document(self.body(), "index")?;
                let found = collection.indexes.iter().find(|index| {
                    index.spec.to_document().get_document("key").is_ok_and(|other| *other == keys)
                });
                let found = found.ok_or_else(|| Error::NoIndex(keys.to_string()))?;
                vec![found.spec.name.clone()]
            }
            _ => return Err(CommandError::bad_value("dropIndexes needs an index")),
        };
        if named.iter().any(|name| name == slate::ID_INDEX) {
            return Err(CommandError::new(72, "InvalidOptions", "cannot drop _id index"));
        }
        let before = collection.indexes.len() as i32 + 1;
        self.context.engine.write(move |transaction| {
            named.iter().try_for_each(|name| transaction.drop_index(&namespace, name))
        })?;
        Ok(Reply::Document(doc! { "nIndexesWas": before }))
    }

    pub(super) fn collection_stats(self) -> Result<Reply> {
        let namespace = self.namespace()?;
        let count = self.context.engine.document_count(&namespace)?;
        let indexes = self.context.engine.collection(&namespace)?.indexes.len() as i32 + 1;
        Ok(Reply::Document(doc! { "ns": namespace, "count": count as i64, "nindexes": indexes }))
    }

    pub(super) fn database_stats(self) -> Result<Reply> {
        let names = self.collections();
        let count = |name: &String| {
            self.context.engine.document_count(&format!("{}.{name}", self.database)).unwrap_or(0)
        };
        let objects: u64 = names.iter().map(count).sum();
        let size = self.context.engine.size_bytes();
        Ok(Reply::Document(doc! {
            "db": &self.database,
            "collections": names.len() as i32,
            "objects": objects as i64,
            "dataSize": size as i64,
        }))
    }
}
