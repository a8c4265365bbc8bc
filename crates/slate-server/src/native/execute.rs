//! Requests on the engine.

use std::time::Instant;

use slate::{Error, Path, PendingWrite, Query, Result, Transaction, Update};
use slate_client::protocol::{self, CollectionInfo, ErrorCode, Find, Request, Response};

use super::translate::{self, DATABASE, namespace};
use crate::context::SharedContext;

/// Most requests of a transaction.
const TRANSACTION_REQUESTS_MAX: usize = 10_000;

/// A response, or a write that is on its way.
#[derive(Debug)]
pub(super) enum Outcome {
    Ready(Response),
    Pending(PendingWrite<Response>),
}

impl Outcome {
    /// Waits until the response is known.
    pub(super) fn wait(self) -> Response {
        match self {
            Self::Ready(response) => response,
            Self::Pending(ticket) => ticket.wait().unwrap_or_else(|error| translate::error(&error)),
        }
    }
}

type Write = Box<dyn FnOnce(&mut Transaction<'_>) -> Result<Response> + Send>;

/// Starts a request.
pub(super) fn execute(context: &SharedContext, request: Request) -> Outcome {
    match read(context, request) {
        Ok(Ok(response)) => Outcome::Ready(response),
        Ok(Err(request)) => match write(request, deadline(context)) {
            Ok(write) => Outcome::Pending(context.engine.submit(write)),
            Err(error) => Outcome::Ready(translate::error(&error)),
        },
        Err(error) => Outcome::Ready(translate::error(&error)),
    }
}

/// Runs a write now, or returns nothing if it would have to wait for another one or for a disk.
pub(super) fn try_execute(context: &SharedContext, request: Request) -> Option<Response> {
    let result = match write(request, deadline(context)) {
        Ok(write) => context.engine.try_write(write).ok()?,
        Err(error) => Err(error),
    };
    Some(result.unwrap_or_else(|error| translate::error(&error)))
}

/// Answers a request, or hands it back if it is a write.
fn read(context: &SharedContext, request: Request) -> Result<std::result::Result<Response, Request>> {
    let engine = &context.engine;
    Ok(Ok(match request {
        Request::Ping => Response::Ok,
        Request::Find(find) => {
            let query = translate::query(&find, context.query_timeout)?;
            let batch = find.batch_size as usize;
            let first = context.cursors.open(engine, &namespace(&find.collection), &query, batch)?;
            let documents = first.documents.into_iter().map(Into::into).collect();
            Response::Documents { documents, cursor: first.cursor.cast_unsigned() }
        }
        Request::FindOne(find) => {
            let query = translate::query(&Find { take: Some(1), ..find.clone() }, context.query_timeout)?;
            let found = engine.find(&namespace(&find.collection), &query)?.into_iter().next();
            Response::Document { document: found.map(Into::into) }
        }
        Request::FindById { collection, id } => {
            let copy = |document: &bson::raw::RawDocument| protocol::Doc(document.as_bytes().to_vec());
            let document = engine.get_raw(&namespace(&collection), translate::raw_value(&id.0.0)?, copy)?;
            Response::Document { document }
        }
        Request::GetMore { cursor, batch_size } => {
            match context.cursors.next(cursor.cast_signed(), batch_size as usize)? {
                Some((_, documents, done)) => Response::Documents {
                    documents: documents.into_iter().map(Into::into).collect(),
                    cursor: if done { 0 } else { cursor },
                },
                None => not_found(format!("cursor {cursor} does not exist")),
            }
        }
        Request::CloseCursor { cursor } => {
            context.cursors.close(cursor.cast_signed());
            Response::Ok
        }
        Request::Count { collection, filter } => {
            let query = Query { deadline: deadline(context), ..translate::filter(&filter)? };
            Response::Count { count: engine.count(&namespace(&collection), &query)? }
        }
        Request::Distinct { collection, field, filter } => {
            let query = Query { deadline: deadline(context), ..translate::filter(&filter)? };
            let values = engine.distinct(&namespace(&collection), &Path::parse(&field)?, &query)?;
            Response::Values { values: translate::values(values)? }
        }
        Request::Explain(find) => {
            let query = translate::query(&find, context.query_timeout)?;
            let explanation = engine.explain(&namespace(&find.collection), &query)?;
            let explanation =
                protocol::Doc::new(&explanation).map_err(|error| Error::invalid(error.to_string()))?;
            Response::Explained { explanation }
        }
        Request::ListCollections => list_collections(context)?,
        Request::ListIndexes { collection } => {
            let name = namespace(&collection);
            let indexes = engine.indexes(&name)?.into_iter().filter_map(translate::index_info);
            let failed = engine.failed_builds(&name)?.into_iter().map(translate::failed_index);
            Response::Indexes { indexes: indexes.chain(failed).collect() }
        }
        // What is left of an index whose build failed.
        Request::DropIndex { collection, index }
            if engine.forget_failed_build(&namespace(&collection), &index) =>
        {
            Response::Ok
        }
        Request::CreateIndex { collection, index, background } => {
            let (name, spec) = (namespace(&collection), translate::index_spec(&index)?);
            if background {
                engine.start_index(&name, spec)?;
            } else {
                engine.create_index(&name, spec)?;
            }
            Response::Ok
        }
        request => return Ok(Err(request)),
    }))
}

fn list_collections(context: &SharedContext) -> Result<Response> {
    let prefix = namespace("");
    let catalog = context.engine.catalog();
    let mut collections = Vec::new();
    for collection in catalog.collections() {
        let Some(name) = collection.name.strip_prefix(&prefix) else { continue };
        collections.push(CollectionInfo {
            name: name.to_owned(),
            documents: context.engine.document_count(&collection.name).unwrap_or(0),
            indexes: u32::try_from(collection.indexes.len()).unwrap_or(u32::MAX),
        });
    }
    debug_assert!(prefix.starts_with(DATABASE));
    Ok(Response::Collections { collections })
}

/// Returns the time at which an operation that begins now is given up.
fn deadline(context: &SharedContext) -> Option<Instant> {
    Some(Instant::now() + context.query_timeout)
}

/// Checks a write and returns what to run in its transaction.
fn write(request: Request, deadline: Option<Instant>) -> Result<Write> {
    Ok(match request {
        Request::CreateCollection { collection, indexes } => {
            let specs = indexes.iter().map(translate::index_spec).collect::<Result<Vec<_>>>()?;
            Box::new(move |transaction| {
                transaction.create_collection(&namespace(&collection))?;
                for spec in specs {
                    transaction.create_index(&namespace(&collection), spec)?;
                }
                Ok(Response::Ok)
            })
        }
        Request::DropCollection { collection } => Box::new(move |transaction| {
            transaction.drop_collection(&namespace(&collection))?;
            Ok(Response::Ok)
        }),
        Request::DropIndex { collection, index } => Box::new(move |transaction| {
            transaction.drop_index(&namespace(&collection), &index)?;
            Ok(Response::Ok)
        }),
        Request::InsertOne { collection, document } => {
            let document = translate::raw(document)?;
            Box::new(move |transaction| {
                let id = transaction.insert(&namespace(&collection), &document)?;
                Ok(Response::Inserted { ids: vec![translate::value(id)?] })
            })
        }
        Request::InsertMany { collection, documents } => {
            let documents = translate::raws(documents)?;
            Box::new(move |transaction| {
                let inserted = transaction.insert_many(&namespace(&collection), &documents, true)?;
                match inserted.failures.into_iter().next() {
                    // All or none.
                    Some((_, error)) => Err(error),
                    None => Ok(Response::Inserted { ids: translate::values(inserted.ids)? }),
                }
            })
        }
        Request::UpdateOne(update) => self::update(update, Some(1), false, deadline)?,
        Request::UpdateMany(update) => self::update(update, None, false, deadline)?,
        Request::ReplaceOne(update) => self::update(update, Some(1), true, deadline)?,
        Request::DeleteOne { collection, filter } => delete(collection, &filter, Some(1), deadline)?,
        Request::DeleteMany { collection, filter } => delete(collection, &filter, None, deadline)?,
        Request::UpsertMany { collection, documents } => upsert(collection, documents, false)?,
        Request::MergeMany { collection, documents } => upsert(collection, documents, true)?,
        Request::Transaction { requests } => {
            if requests.len() > TRANSACTION_REQUESTS_MAX {
                return Err(Error::TooLarge(format!(
                    "a transaction has at most {TRANSACTION_REQUESTS_MAX} requests"
                )));
            }
            let writes = requests
                .into_iter()
                .map(|request| match request {
                    Request::Transaction { .. } => Err(Error::invalid("transactions do not nest")),
                    request => write(request, deadline),
                })
                .collect::<Result<Vec<_>>>()?;
            Box::new(move |transaction| {
                let results = writes.into_iter().map(|write| write(transaction)).collect::<Result<_>>()?;
                Ok(Response::Results { results })
            })
        }
        _ => return Err(Error::invalid("only writes can be part of a transaction")),
    })
}

fn update(
    update: protocol::Update,
    limit: Option<usize>,
    replace: bool,
    deadline: Option<Instant>,
) -> Result<Write> {
    let query = Query { limit, deadline, ..translate::filter(&update.filter)? };
    let parsed = Update::parse(&translate::document(&update.update)?)?;
    if parsed.is_replacement() != replace {
        let message = if replace {
            "a replacement must not contain update operators"
        } else {
            "an update requires operators such as $set; use ReplaceOne to replace a document"
        };
        return Err(Error::invalid(message));
    }
    Ok(Box::new(move |transaction| {
        let updated = transaction.update(&namespace(&update.collection), &query, &parsed, update.upsert)?;
        let upserted = updated.upserted.map(translate::value).transpose()?;
        Ok(Response::Updated { matched: updated.matched, modified: updated.modified, upserted })
    }))
}

fn delete(
    collection: String,
    filter: &protocol::Doc,
    limit: Option<usize>,
    deadline: Option<Instant>,
) -> Result<Write> {
    let query = Query { limit, deadline, ..translate::filter(filter)? };
    Ok(Box::new(move |transaction| {
        Ok(Response::Deleted { count: transaction.delete(&namespace(&collection), &query)? })
    }))
}

fn upsert(collection: String, documents: Vec<protocol::Doc>, merge: bool) -> Result<Write> {
    let documents = translate::raws(documents)?;
    Ok(Box::new(move |transaction| {
        let (inserted, modified) = transaction.upsert_many(&namespace(&collection), &documents, merge)?;
        Ok(Response::Upserted { inserted, modified })
    }))
}

fn not_found(message: String) -> Response {
    Response::Error { code: ErrorCode::NotFound, message }
}
