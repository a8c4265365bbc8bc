//! Commands that read.

use bson::{Bson, Document, RawArrayBuf, RawDocumentBuf, doc, raw::cstr};
use slate::{Error, Path, Pipeline, Query};

use super::{Command, Reply, document, flag, integer, refuse};
use crate::{
    cursors::FirstBatch,
    mongo::error::{CommandError, Result},
};

impl Command<'_> {
    pub(super) fn find(self) -> Result<Reply> {
        if flag(self.body(), "tailable", false) {
            return Err(CommandError::bad_value("tailable cursors are not supported"));
        }
        let namespace = self.namespace()?;
        let query = self.query("filter")?;
        let batch = batch_size(self.body(), "batchSize")?;
        let single = integer(self.body(), "limit").is_some_and(|limit| limit < 0)
            || flag(self.body(), "singleBatch", false);
        let query = match (single, batch, query.limit) {
            // The client asks for one batch and no cursor.
            (true, Some(batch), limit) => Query { limit: Some(limit.unwrap_or(batch).min(batch)), ..query },
            _ => query,
        };
        if batch == Some(0) {
            // A cursor without documents: they come with the first getMore.
            let opened = self.context.cursors.open_unread(&self.context.engine, &namespace, &query);
            let cursor = match opened {
                Err(Error::NoCollection(_)) => 0,
                cursor => cursor?,
            };
            let unread = FirstBatch { documents: Vec::new(), cursor };
            return Ok(cursor_reply(&namespace, cstr!("firstBatch"), &unread));
        }
        let first = self.context.cursors.open(&self.context.engine, &namespace, &query, batch.unwrap_or(101));
        let first = match first {
            // As in MongoDB, a collection that does not exist is empty.
            Err(Error::NoCollection(_)) => FirstBatch::default(),
            first => first?,
        };
        Ok(cursor_reply(&namespace, cstr!("firstBatch"), &first))
    }

    pub(super) fn get_more(self) -> Result<Reply> {
        let id = integer(self.body(), "getMore").unwrap_or(0);
        let batch = batch_size(self.body(), "batchSize")?.unwrap_or(0);
        match self.context.cursors.next(id, batch)? {
            Some((namespace, documents, done)) => {
                let batch = FirstBatch { documents, cursor: if done { 0 } else { id } };
                Ok(cursor_reply(&namespace, cstr!("nextBatch"), &batch))
            }
            None => Err(CommandError::new(43, "CursorNotFound", format!("cursor id {id} not found"))),
        }
    }

    pub(super) fn kill_cursors(self) -> Result<Reply> {
        let ids = self.body().get_array("cursors").cloned().unwrap_or_default();
        let (killed, unknown): (Vec<Bson>, Vec<Bson>) =
            ids.into_iter().partition(|id| id.as_i64().is_some_and(|id| self.context.cursors.close(id)));
        Ok(Reply::Document(doc! {
            "cursorsKilled": killed,
            "cursorsNotFound": unknown,
            "cursorsAlive": [],
            "cursorsUnknown": [],
        }))
    }

    pub(super) fn count(self) -> Result<Reply> {
        let count = match self.context.engine.count(&self.namespace()?, &self.query("query")?) {
            Err(Error::NoCollection(_)) => 0,
            count => count?,
        };
        Ok(Reply::Document(doc! { "n": number(count) }))
    }

    pub(super) fn distinct(self) -> Result<Reply> {
        let key = self.body().get_str("key").map_err(|_| CommandError::bad_value("distinct needs a key"))?;
        let path = Path::parse(key)?;
        let values = match self.context.engine.distinct(&self.namespace()?, &path, &self.query("query")?) {
            Err(Error::NoCollection(_)) => Vec::new(),
            values => values?,
        };
        Ok(Reply::Document(doc! { "values": values }))
    }

    pub(super) fn aggregate(self) -> Result<Reply> {
        refuse(self.body(), &["collation"])?;
        let stages = self.body().get_array("pipeline").cloned();
        let stages =
            stages.map_err(|_| CommandError::bad_value("'pipeline' option must be specified as an array"))?;
        let pipeline = Pipeline::parse(&stages)?;
        let namespace = self.namespace()?;
        let options = document(self.body(), "cursor")?;
        let batch = batch_size(&options, "batchSize")?.unwrap_or(101);
        let documents = pipeline.run(&self.context.engine, &namespace, &self.database, self.deadline());
        let documents = documents.or_else(missing_is_empty)?;
        let first = self.context.cursors.open_buffered(&namespace, documents, batch)?;
        Ok(cursor_reply(&namespace, cstr!("firstBatch"), &first))
    }

    pub(super) fn explain(mut self) -> Result<Reply> {
        let inner = self.document("explain")?;
        let database = std::mem::take(&mut self.database);
        self.message.body = inner;
        self.database = database;
        let name = self.message.command().to_owned();
        let query = match name.as_str() {
            "find" => self.query("filter")?,
            "count" | "distinct" => self.query("query")?,
            "aggregate" => {
                let stages = self.body().get_array("pipeline").cloned().unwrap_or_default();
                Pipeline::parse(&stages)?.query().clone()
            }
            "delete" | "update" => {
                let statements = if name == "delete" { "deletes" } else { "updates" };
                let statements = self.message.take_documents(statements)?;
                let first = statements.first().map(Document::try_from).transpose();
                let first =
                    first.map_err(|error| CommandError::bad_value(error.to_string()))?.unwrap_or_default();
                Query::parse(&document(&first, "q")?, &Document::new(), &Document::new())?
            }
            _ => {
                return Err(CommandError::new(
                    59,
                    "CommandNotFound",
                    format!("Explain failed due to unknown command: {name}"),
                ));
            }
        };
        Ok(Reply::Document(self.context.engine.explain(&self.namespace()?, &query)?))
    }
}

fn missing_is_empty(error: Error) -> slate::Result<Vec<RawDocumentBuf>> {
    match error {
        Error::NoCollection(_) => Ok(Vec::new()),
        error => Err(error),
    }
}

fn batch_size(body: &Document, name: &str) -> Result<Option<usize>> {
    match integer(body, name) {
        None => Ok(None),
        Some(size) => usize::try_from(size)
            .map(Some)
            .map_err(|_| CommandError::bad_value("batchSize must not be negative")),
    }
}

pub(super) fn number(count: u64) -> Bson {
    i32::try_from(count).map_or(Bson::Int64(count.cast_signed()), Bson::Int32)
}

/// Encodes `{cursor: {<batch>: [...], id, ns}, ok: 1}` without decoding the documents.
pub(super) fn cursor_reply(namespace: &str, name: &bson::raw::CStr, batch: &FirstBatch) -> Reply {
    let mut documents = RawArrayBuf::new();
    for document in &batch.documents {
        documents.push(document);
    }
    let mut cursor = RawDocumentBuf::new();
    cursor.append(name, &documents);
    cursor.append(cstr!("id"), batch.cursor);
    cursor.append(cstr!("ns"), namespace);
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("cursor"), &cursor);
    reply.append(cstr!("ok"), 1.0);
    Reply::Raw(reply.into_bytes())
}
