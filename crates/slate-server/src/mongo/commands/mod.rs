//! Commands on the engine.

mod admin;
mod read;
mod write;

use std::time::{Duration, Instant};

use bson::{Bson, Document};
use slate::Query;

use super::{
    error::{CommandError, Result},
    message::Message,
};
use crate::context::SharedContext;

/// Most statements of one write command, as announced by `hello`.
pub(super) const STATEMENTS_MAX: usize = 100_000;

/// A command's answer.
#[derive(Debug)]
pub(super) enum Reply {
    /// Without `ok`, which is added.
    Document(Document),
    /// Encoded, with `ok`.
    Raw(Vec<u8>),
}

/// A command with what most of them need.
pub(super) struct Command<'a> {
    context: &'a SharedContext,
    database: String,
    message: Message,
}

/// Names that metrics may carry; anything else is `other`, so that clients cannot make up labels.
const NAMES: [&str; 30] = [
    "aggregate",
    "buildInfo",
    "collStats",
    "connectionStatus",
    "count",
    "create",
    "createIndexes",
    "dbStats",
    "delete",
    "distinct",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "endSessions",
    "explain",
    "find",
    "findAndModify",
    "getMore",
    "hello",
    "insert",
    "isMaster",
    "ismaster",
    "killCursors",
    "listCollections",
    "listDatabases",
    "listIndexes",
    "ping",
    "saslContinue",
    "saslStart",
    "update",
];

pub(super) fn metric_name(command: &str) -> &'static str {
    NAMES.into_iter().find(|name| *name == command).unwrap_or("other")
}

/// Runs a command of an authenticated client.
pub(super) fn run(context: &SharedContext, message: Message) -> Result<Reply> {
    let database = message.body.get_str("$db").unwrap_or("test").to_owned();
    if database.is_empty() || database.len() > 63 || database.contains(['.', '$', ' ', '/', '\\', '"', '\0'])
    {
        return Err(CommandError::new(
            73,
            "InvalidNamespace",
            format!("Invalid database name: '{database}'"),
        ));
    }
    if message.body.contains_key("startTransaction") || message.body.contains_key("autocommit") {
        return Err(CommandError::new(
            20,
            "IllegalOperation",
            "transactions over the MongoDB protocol are not supported",
        ));
    }
    let name = message.command().to_owned();
    let command = Command { context, database, message };
    match name.as_str() {
        "ping" | "endSessions" => Ok(Reply::Document(Document::new())),
        "buildInfo" | "buildinfo" => Ok(admin::build_info()),
        "connectionStatus" => Ok(admin::connection_status()),
        "listDatabases" => command.list_databases(),
        "listCollections" => command.list_collections(),
        "create" => command.create(),
        "drop" => command.drop(),
        "dropDatabase" => command.drop_database(),
        "createIndexes" => command.create_indexes(),
        "listIndexes" => command.list_indexes(),
        "dropIndexes" => command.drop_indexes(),
        "collStats" => command.collection_stats(),
        "dbStats" => command.database_stats(),
        "insert" => command.insert(),
        "update" => command.update(),
        "delete" => command.delete(),
        "findAndModify" | "findandmodify" => command.find_and_modify(),
        "find" => command.find(),
        "getMore" => command.get_more(),
        "killCursors" => command.kill_cursors(),
        "count" => command.count(),
        "distinct" => command.distinct(),
        "aggregate" => command.aggregate(),
        "explain" => command.explain(),
        _ => Err(CommandError::new(59, "CommandNotFound", format!("no such command: '{name}'"))),
    }
}

impl Command<'_> {
    fn body(&self) -> &Document {
        &self.message.body
    }

    /// Returns the collection's name, which is the value of the command's first field.
    fn collection(&self) -> Result<String> {
        match self.body().values().next() {
            Some(Bson::String(name)) if !name.is_empty() => Ok(name.clone()),
            _ => Err(CommandError::new(73, "InvalidNamespace", "collection name has invalid type")),
        }
    }

    fn namespace(&self) -> Result<String> {
        Ok(format!("{}.{}", self.database, self.collection()?))
    }

    fn document(&self, name: &str) -> Result<Document> {
        document(self.body(), name)
    }

    fn deadline(&self) -> Option<Instant> {
        let limit = integer(self.body(), "maxTimeMS").and_then(|millis| u64::try_from(millis).ok());
        let limit = limit.filter(|millis| *millis > 0).map(Duration::from_millis);
        let timeout = limit.map_or(self.context.query_timeout, |limit| limit.min(self.context.query_timeout));
        Some(Instant::now() + timeout)
    }

    /// Builds the query of `find`, and of what resembles it.
    fn query(&self, filter: &str) -> Result<Query> {
        let size = |name: &str| integer(self.body(), name).unwrap_or(0);
        let skip = usize::try_from(size("skip"))
            .map_err(|_| CommandError::bad_value("skip must not be negative"))?;
        // A negative limit means one batch.
        let limit = usize::try_from(size("limit").unsigned_abs()).ok().filter(|limit| *limit > 0);
        refuse(self.body(), &["collation"])?;
        // `findAndModify` calls it `fields`.
        let projection = if self.body().contains_key("projection") { "projection" } else { "fields" };
        let projection = self.document(projection)?;
        Ok(Query {
            skip,
            limit,
            deadline: self.deadline(),
            ..Query::parse(&self.document(filter)?, &self.document("sort")?, &projection)?
        })
    }
}

/// Returns a document field; a missing one is empty.
fn document(body: &Document, name: &str) -> Result<Document> {
    match body.get(name) {
        None | Some(Bson::Null) => Ok(Document::new()),
        Some(Bson::Document(document)) => Ok(document.clone()),
        Some(_) => {
            Err(CommandError::new(14, "TypeMismatch", format!("BSON field '{name}' is the wrong type")))
        }
    }
}

/// Refuses options that would change the result.
fn refuse(body: &Document, options: &[&str]) -> Result<()> {
    match options.iter().find(|option| body.contains_key(**option)) {
        Some(option) => Err(CommandError::bad_value(format!("{option} is not supported"))),
        None => Ok(()),
    }
}

fn integer(body: &Document, name: &str) -> Option<i64> {
    match body.get(name)? {
        Bson::Int32(value) => Some(i64::from(*value)),
        Bson::Int64(value) => Some(*value),
        Bson::Double(value) => Some(*value as i64),
        _ => None,
    }
}

fn flag(body: &Document, name: &str, default: bool) -> bool {
    match body.get(name) {
        Some(Bson::Boolean(value)) => *value,
        Some(_) => integer(body, name).map_or(default, |value| value != 0),
        None => default,
    }
}
