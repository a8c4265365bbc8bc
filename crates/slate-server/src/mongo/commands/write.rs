//! Commands that write. Collections come into being with their first write, as in MongoDB.

use bson::{Bson, Document, RawDocumentBuf, doc};
use slate::{Error, Query, Transaction, Update};

use super::{Command, Reply, STATEMENTS_MAX, document, flag, integer, read::number, refuse};
use crate::mongo::error::{CommandError, Result};

impl Command<'_> {
    pub(super) fn insert(mut self) -> Result<Reply> {
        let namespace = self.namespace()?;
        let ordered = flag(self.body(), "ordered", true);
        let documents = self.message.take_documents("documents")?;
        check_statements(documents.len())?;
        let total = documents.len();
        let inserted = self.context.engine.write(move |transaction| {
            create_if_missing(transaction, &namespace)?;
            transaction.insert_many(&namespace, &documents, ordered)
        })?;
        let mut reply = doc! { "n": inserted.ids.len() as i32 };
        debug_assert!(inserted.ids.len() + inserted.failures.len() <= total);
        let errors: Vec<Bson> = inserted
            .failures
            .into_iter()
            .map(|(position, error)| CommandError::from(error).to_write_error(position).into())
            .collect();
        if !errors.is_empty() {
            reply.insert("writeErrors", errors);
        }
        Ok(Reply::Document(reply))
    }

    pub(super) fn update(mut self) -> Result<Reply> {
        let namespace = self.namespace()?;
        let ordered = flag(self.body(), "ordered", true);
        let statements = decode(self.message.take_documents("updates")?)?;
        let (mut matched, mut modified) = (0, 0);
        let (mut upserted, mut errors) = (Vec::<Bson>::new(), Vec::<Bson>::new());
        for (position, statement) in statements.iter().enumerate() {
            match self.update_one(&namespace, statement) {
                Ok(updated) => {
                    matched += updated.matched;
                    modified += updated.modified;
                    if let Some(id) = updated.upserted {
                        upserted.push(doc! { "index": position as i32, "_id": id }.into());
                    }
                }
                Err(error) => {
                    errors.push(error.to_write_error(position).into());
                    if ordered {
                        break;
                    }
                }
            }
        }
        let mut reply = doc! { "n": number(matched + upserted.len() as u64), "nModified": number(modified) };
        if !upserted.is_empty() {
            reply.insert("upserted", upserted);
        }
        if !errors.is_empty() {
            reply.insert("writeErrors", errors);
        }
        Ok(Reply::Document(reply))
    }

    fn update_one(&self, namespace: &str, statement: &Document) -> Result<slate::Updated> {
        let multi = flag(statement, "multi", false);
        let upsert = flag(statement, "upsert", false);
        let filter =
            Query::parse(&document(statement, "q")?, &document(statement, "sort")?, &Document::new())?;
        let query = Query { limit: (!multi).then_some(1), deadline: self.deadline(), ..filter };
        let update = parse_update(statement.get("u"))?;
        refuse(statement, &["arrayFilters", "collation"])?;
        let namespace = namespace.to_owned();
        let updated = self.context.engine.write(move |transaction| {
            if upsert {
                create_if_missing(transaction, &namespace)?;
            }
            match transaction.update(&namespace, &query, &update, upsert) {
                Err(Error::NoCollection(_)) => Ok(slate::Updated::default()),
                updated => updated,
            }
        })?;
        Ok(updated)
    }

    pub(super) fn delete(mut self) -> Result<Reply> {
        let namespace = self.namespace()?;
        let ordered = flag(self.body(), "ordered", true);
        let statements = decode(self.message.take_documents("deletes")?)?;
        let mut deleted = 0;
        let mut errors = Vec::<Bson>::new();
        for (position, statement) in statements.iter().enumerate() {
            match self.delete_one(&namespace, statement) {
                Ok(count) => deleted += count,
                Err(error) => {
                    errors.push(error.to_write_error(position).into());
                    if ordered {
                        break;
                    }
                }
            }
        }
        let mut reply = doc! { "n": number(deleted) };
        if !errors.is_empty() {
            reply.insert("writeErrors", errors);
        }
        Ok(Reply::Document(reply))
    }

    fn delete_one(&self, namespace: &str, statement: &Document) -> Result<u64> {
        let limit = (integer(statement, "limit") == Some(1)).then_some(1);
        let filter = Query::parse(&document(statement, "q")?, &Document::new(), &Document::new())?;
        let query = Query { limit, deadline: self.deadline(), ..filter };
        refuse(statement, &["collation"])?;
        let namespace = namespace.to_owned();
        let deleted =
            self.context.engine.write(move |transaction| match transaction.delete(&namespace, &query) {
                Err(Error::NoCollection(_)) => Ok(0),
                deleted => deleted,
            })?;
        Ok(deleted)
    }

    pub(super) fn find_and_modify(self) -> Result<Reply> {
        let namespace = self.namespace()?;
        let query = self.query("query")?;
        let remove = flag(self.body(), "remove", false);
        let upsert = flag(self.body(), "upsert", false);
        let new = flag(self.body(), "new", false);
        refuse(self.body(), &["arrayFilters"])?;
        let update = if remove { None } else { Some(parse_update(self.body().get("update"))?) };
        let projection = query.projection.clone();
        let modified = self.context.engine.write(move |transaction| {
            if upsert {
                create_if_missing(transaction, &namespace)?;
            }
            match transaction.find_and_modify(&namespace, &query, update.as_ref(), upsert) {
                Err(Error::NoCollection(_)) => Ok(slate::Modified::default()),
                modified => modified,
            }
        })?;
        let found = modified.before.is_some();
        let touched = found || modified.upserted.is_some();
        let returned = if new && !remove { modified.after } else { modified.before };
        let returned = returned.map(|document| match &projection {
            Some(projection) => projection.apply(&document),
            None => document,
        });
        let value = match returned {
            Some(document) => Bson::Document(
                Document::try_from(&document)
                    .map_err(|error| CommandError::new(1, "InternalError", error.to_string()))?,
            ),
            None => Bson::Null,
        };
        let mut last = doc! { "n": i32::from(touched) };
        if !remove {
            last.insert("updatedExisting", found);
        }
        if let Some(id) = modified.upserted {
            last.insert("upserted", id);
        }
        Ok(Reply::Document(doc! { "lastErrorObject": last, "value": value }))
    }
}

pub(super) fn create_if_missing(transaction: &mut Transaction<'_>, namespace: &str) -> slate::Result<()> {
    match transaction.collection(namespace) {
        Err(Error::NoCollection(_)) => transaction.create_collection(namespace),
        found => found.map(drop),
    }
}

fn parse_update(update: Option<&Bson>) -> Result<Update> {
    match update {
        Some(Bson::Document(update)) => Ok(Update::parse(update)?),
        Some(Bson::Array(_)) => Err(CommandError::bad_value("updates by pipeline are not supported")),
        _ => Err(CommandError::bad_value("an update must be a document")),
    }
}

fn decode(documents: Vec<RawDocumentBuf>) -> Result<Vec<Document>> {
    check_statements(documents.len())?;
    let decode = |document: &RawDocumentBuf| {
        slate::document::validate(document)?;
        Document::try_from(document).map_err(|error| Error::invalid(error.to_string()))
    };
    Ok(documents.iter().map(decode).collect::<slate::Result<_>>()?)
}

fn check_statements(count: usize) -> Result<()> {
    if count == 0 || count > STATEMENTS_MAX {
        let message =
            format!("Write batch sizes must be between 1 and {STATEMENTS_MAX}. Got {count} operations.");
        return Err(CommandError::new(16, "InvalidLength", message));
    }
    Ok(())
}
