//! The client: a pool of connections and a method per request.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bson::{Bson, Document, RawDocumentBuf};
use tokio::sync::Mutex;

use crate::{
    Error,
    connection::Connection,
    protocol::{
        self, CollectionInfo, Doc, Find, IndexDefinition, IndexInfo, LookUp, Request, Response, Update,
        VERSION, Value,
    },
};

/// Settings of a client.
#[derive(Debug, Clone)]
pub struct Options {
    /// Host and port.
    pub address: String,
    /// Token of the server, if it has one.
    pub token: Option<String>,
    /// TLS configuration and the name to verify, if the server uses TLS.
    pub tls: Option<(Arc<rustls::ClientConfig>, String)>,
    /// Most connections.
    pub connections: usize,
    /// Time limit of a connection attempt.
    pub connect_timeout: Duration,
    /// Time limit of a request.
    pub timeout: Duration,
}

impl Options {
    /// Builds the settings for an address: plain text, two connections, ten seconds per request.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            token: None,
            tls: None,
            connections: 2,
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
        }
    }
}

/// Result of an update.
#[derive(Debug, Clone, PartialEq)]
pub struct Updated {
    /// Documents that matched.
    pub matched: u64,
    /// Documents that changed.
    pub modified: u64,
    /// `_id` of the document that was inserted, if one was.
    pub upserted: Option<Bson>,
}

/// A client. Clones share its connections, which open when they are needed.
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: Options,
    pool: Vec<Mutex<Option<Connection>>>,
    next: AtomicUsize,
}

impl Client {
    /// Builds a client. Nothing is connected yet.
    pub fn new(options: Options) -> Self {
        let pool = (0..options.connections.max(1)).map(|_| Mutex::new(None)).collect();
        Self { shared: Arc::new(Shared { options, pool, next: AtomicUsize::new(0) }) }
    }

    /// Sends a request and returns its response. An error response is an error.
    pub async fn call(&self, request: &Request) -> Result<Response, Error> {
        self.call_on(self.next_slot(), request).await
    }

    /// Sends requests without waiting between them, and returns their responses in order.
    pub async fn pipeline(&self, requests: &[Request]) -> Result<Vec<Result<Response, Error>>, Error> {
        let mut frames = Frames::with_capacity(requests.len());
        for request in requests {
            frames.push(request)?;
        }
        let responses = self.exchange(self.next_slot(), frames).await?;
        Ok(responses.into_iter().map(expect_success).collect())
    }

    fn next_slot(&self) -> usize {
        self.shared.next.fetch_add(1, Ordering::Relaxed) % self.shared.pool.len()
    }

    async fn call_on(&self, slot: usize, request: &Request) -> Result<Response, Error> {
        let mut frames = Frames::with_capacity(1);
        frames.push(request)?;
        let response = self.exchange(slot, frames).await?.pop();
        expect_success(response.ok_or_else(|| Error::Protocol("no response".to_owned()))?)
    }

    async fn exchange(&self, slot: usize, frames: Frames) -> Result<Vec<Response>, Error> {
        if frames.count == 0 {
            return Ok(Vec::new());
        }
        let timeout = self.shared.options.timeout;
        let call = async {
            let connection = self.connection(slot).await?;
            connection.call(frames.bytes, frames.count).await.map_err(|reason| self.broken(reason))
        };
        tokio::time::timeout(timeout, call).await.map_err(|_| Error::TimedOut(timeout))?
    }

    fn broken(&self, reason: String) -> Error {
        Error::Connection { address: self.shared.options.address.clone(), reason }
    }

    async fn connection(&self, slot: usize) -> Result<Connection, Error> {
        let mut slot = self.shared.pool[slot].lock().await;
        if let Some(connection) = slot.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        let options = &self.shared.options;
        let connection = Connection::open(&options.address, options.tls.as_ref(), options.connect_timeout)
            .await
            .map_err(|reason| self.broken(reason))?;
        if let Some(token) = &options.token {
            let hello = Request::Hello { version: VERSION, token: Some(token.clone()) };
            let mut frame = Vec::new();
            protocol::encode_frame(&hello, &mut frame).map_err(|error| Error::Protocol(error.to_string()))?;
            for response in connection.call(frame, 1).await.map_err(|reason| self.broken(reason))? {
                expect_success(response)?;
            }
        }
        *slot = Some(connection.clone());
        Ok(connection)
    }

    /// Returns the server's boot id and store.
    pub async fn hello(&self) -> Result<(String, String), Error> {
        let token = self.shared.options.token.clone();
        match self.call(&Request::Hello { version: VERSION, token }).await? {
            Response::Hello { boot_id, store, .. } => Ok((boot_id, store)),
            other => Err(unexpected(&other)),
        }
    }

    /// Creates a collection with its indexes.
    pub async fn create_collection(&self, name: &str, indexes: Vec<IndexDefinition>) -> Result<(), Error> {
        self.done(&Request::CreateCollection { collection: name.to_owned(), indexes }).await
    }

    /// Drops a collection.
    pub async fn drop_collection(&self, name: &str) -> Result<(), Error> {
        self.done(&Request::DropCollection { collection: name.to_owned() }).await
    }

    /// Lists collections.
    pub async fn collections(&self) -> Result<Vec<CollectionInfo>, Error> {
        match self.call(&Request::ListCollections).await? {
            Response::Collections { collections } => Ok(collections),
            other => Err(unexpected(&other)),
        }
    }

    /// Creates an index; `background` answers before it is built.
    pub async fn create_index(
        &self,
        collection: &str,
        index: IndexDefinition,
        background: bool,
    ) -> Result<(), Error> {
        self.done(&Request::CreateIndex { collection: collection.to_owned(), index, background }).await
    }

    /// Drops an index by name.
    pub async fn drop_index(&self, collection: &str, index: &str) -> Result<(), Error> {
        self.done(&Request::DropIndex { collection: collection.to_owned(), index: index.to_owned() }).await
    }

    /// Lists the indexes of a collection.
    pub async fn indexes(&self, collection: &str) -> Result<Vec<IndexInfo>, Error> {
        match self.call(&Request::ListIndexes { collection: collection.to_owned() }).await? {
            Response::Indexes { indexes } => Ok(indexes),
            other => Err(unexpected(&other)),
        }
    }

    /// Inserts a document and returns its `_id`.
    pub async fn insert(&self, collection: &str, document: &Document) -> Result<Bson, Error> {
        let request = Request::InsertOne { collection: collection.to_owned(), document: encode(document)? };
        match self.call(&request).await? {
            Response::Inserted { ids } => match ids.first() {
                Some(id) => id.decode().map_err(malformed),
                None => Ok(Bson::Null),
            },
            other => Err(unexpected(&other)),
        }
    }

    /// Inserts documents, all or none. Returns their number.
    pub async fn insert_many(&self, collection: &str, documents: &[Document]) -> Result<usize, Error> {
        let documents = documents.iter().map(encode).collect::<Result<_, _>>()?;
        match self.call(&Request::InsertMany { collection: collection.to_owned(), documents }).await? {
            Response::Inserted { ids } => Ok(ids.len()),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns every document that matches.
    pub async fn find(&self, collection: &str, filter: Document) -> Result<Vec<Document>, Error> {
        self.find_with(Find {
            collection: collection.to_owned(),
            filter: encode(&filter)?,
            ..Find::default()
        })
        .await
    }

    /// Returns every document of a query, following its cursor.
    pub async fn find_with(&self, find: Find) -> Result<Vec<Document>, Error> {
        // A cursor belongs to its connection.
        let slot = self.next_slot();
        let mut response = self.call_on(slot, &Request::Find(find)).await?;
        let mut found = Vec::new();
        loop {
            let Response::Documents { documents, cursor } = response else {
                return Err(unexpected(&response));
            };
            for document in &documents {
                found.push(document.decode().map_err(malformed)?);
            }
            if cursor == 0 {
                return Ok(found);
            }
            response = self.call_on(slot, &Request::GetMore { cursor, batch_size: 0 }).await?;
        }
    }

    /// Returns the document with an `_id`.
    pub async fn find_by_id(&self, collection: &str, id: Bson) -> Result<Option<Document>, Error> {
        let id = Value::new(id).map_err(malformed)?;
        match self.call(&Request::FindById { collection: collection.to_owned(), id }).await? {
            Response::Document { document } => {
                document.map(|document| document.decode().map_err(malformed)).transpose()
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the documents with these `_id`s, each as stored. The look-ups are pipelined.
    pub async fn find_by_ids(
        &self,
        collection: &str,
        ids: impl IntoIterator<Item = Bson>,
    ) -> Result<Vec<Option<RawDocumentBuf>>, Error> {
        let ids = ids.into_iter();
        let mut frames = Frames::with_capacity(ids.size_hint().0);
        for id in ids {
            let id = Value::new(id).map_err(malformed)?;
            LookUp::FindById { collection, id: &id.0.0 }.encode_frame(&mut frames.bytes);
            frames.count += 1;
        }
        self.exchange(self.next_slot(), frames)
            .await?
            .into_iter()
            .map(|response| match expect_success(response)? {
                Response::Document { document } => document
                    .map(|document| RawDocumentBuf::from_bytes(document.0).map_err(malformed))
                    .transpose(),
                other => Err(unexpected(&other)),
            })
            .collect()
    }

    /// Returns the first match.
    pub async fn find_one(&self, collection: &str, filter: &Document) -> Result<Option<Document>, Error> {
        let find = Find { collection: collection.to_owned(), filter: encode(filter)?, ..Find::default() };
        match self.call(&Request::FindOne(find)).await? {
            Response::Document { document } => {
                document.map(|document| document.decode().map_err(malformed)).transpose()
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Updates every match.
    pub async fn update_many(
        &self,
        collection: &str,
        filter: &Document,
        update: &Document,
    ) -> Result<Updated, Error> {
        self.updated(Request::UpdateMany(Self::update(collection, filter, update, false)?)).await
    }

    /// Updates the first match, or inserts one if there is none and `upsert` says so.
    pub async fn update_one(
        &self,
        collection: &str,
        filter: &Document,
        update: &Document,
        upsert: bool,
    ) -> Result<Updated, Error> {
        self.updated(Request::UpdateOne(Self::update(collection, filter, update, upsert)?)).await
    }

    /// Replaces the first match, or inserts the document if there is none and `upsert` says so.
    pub async fn replace_one(
        &self,
        collection: &str,
        filter: &Document,
        document: &Document,
        upsert: bool,
    ) -> Result<Updated, Error> {
        self.updated(Request::ReplaceOne(Self::update(collection, filter, document, upsert)?)).await
    }

    fn update(collection: &str, filter: &Document, update: &Document, upsert: bool) -> Result<Update, Error> {
        Ok(Update {
            collection: collection.to_owned(),
            filter: encode(filter)?,
            update: encode(update)?,
            upsert,
        })
    }

    async fn updated(&self, request: Request) -> Result<Updated, Error> {
        match self.call(&request).await? {
            Response::Updated { matched, modified, upserted } => {
                let upserted = upserted.map(|id| id.decode().map_err(malformed)).transpose()?;
                Ok(Updated { matched, modified, upserted })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Deletes every match. Returns their number.
    pub async fn delete_many(&self, collection: &str, filter: &Document) -> Result<u64, Error> {
        let filter = encode(filter)?;
        self.deleted(Request::DeleteMany { collection: collection.to_owned(), filter }).await
    }

    /// Deletes the first match. Returns 1, or 0 if there is none.
    pub async fn delete_one(&self, collection: &str, filter: &Document) -> Result<u64, Error> {
        let filter = encode(filter)?;
        self.deleted(Request::DeleteOne { collection: collection.to_owned(), filter }).await
    }

    async fn deleted(&self, request: Request) -> Result<u64, Error> {
        match self.call(&request).await? {
            Response::Deleted { count } => Ok(count),
            other => Err(unexpected(&other)),
        }
    }

    /// Inserts documents, or replaces those with the same `_id`. Returns inserted and modified counts.
    pub async fn upsert_many(&self, collection: &str, documents: &[Document]) -> Result<(u64, u64), Error> {
        let documents = documents.iter().map(encode).collect::<Result<_, _>>()?;
        self.upserted(Request::UpsertMany { collection: collection.to_owned(), documents }).await
    }

    /// Inserts documents, or sets their fields in those with the same `_id`. Returns inserted and modified
    /// counts.
    pub async fn merge_many(&self, collection: &str, documents: &[Document]) -> Result<(u64, u64), Error> {
        let documents = documents.iter().map(encode).collect::<Result<_, _>>()?;
        self.upserted(Request::MergeMany { collection: collection.to_owned(), documents }).await
    }

    async fn upserted(&self, request: Request) -> Result<(u64, u64), Error> {
        match self.call(&request).await? {
            Response::Upserted { inserted, modified } => Ok((inserted, modified)),
            other => Err(unexpected(&other)),
        }
    }

    /// Runs writes, all or none. Returns their responses.
    pub async fn transaction(&self, requests: Vec<Request>) -> Result<Vec<Response>, Error> {
        match self.call(&Request::Transaction { requests }).await? {
            Response::Results { results } => Ok(results),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the distinct values of a field among the matches, in order.
    pub async fn distinct(
        &self,
        collection: &str,
        field: &str,
        filter: &Document,
    ) -> Result<Vec<Bson>, Error> {
        let request = Request::Distinct {
            collection: collection.to_owned(),
            field: field.to_owned(),
            filter: encode(filter)?,
        };
        match self.call(&request).await? {
            Response::Values { values } => {
                values.iter().map(|value| value.decode().map_err(malformed)).collect()
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the plan of a query and the work of running it.
    pub async fn explain(&self, find: Find) -> Result<Document, Error> {
        match self.call(&Request::Explain(find)).await? {
            Response::Explained { explanation } => explanation.decode().map_err(malformed),
            other => Err(unexpected(&other)),
        }
    }

    /// Counts matches.
    pub async fn count(&self, collection: &str, filter: &Document) -> Result<u64, Error> {
        let request = Request::Count { collection: collection.to_owned(), filter: encode(filter)? };
        match self.call(&request).await? {
            Response::Count { count } => Ok(count),
            other => Err(unexpected(&other)),
        }
    }

    async fn done(&self, request: &Request) -> Result<(), Error> {
        match self.call(request).await? {
            Response::Ok => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

/// Encoded requests.
struct Frames {
    bytes: Vec<u8>,
    count: usize,
}

impl Frames {
    fn with_capacity(requests: usize) -> Self {
        Self { bytes: Vec::with_capacity(128 * requests), count: 0 }
    }

    fn push(&mut self, request: &impl serde::Serialize) -> Result<(), Error> {
        self.count += 1;
        protocol::encode_frame(request, &mut self.bytes).map_err(|error| Error::Protocol(error.to_string()))
    }
}

fn expect_success(response: Response) -> Result<Response, Error> {
    match response {
        Response::Error { code, message } => Err(Error::Server { code, message }),
        other => Ok(other),
    }
}

fn encode(document: &Document) -> Result<Doc, Error> {
    Doc::new(document).map_err(malformed)
}

fn malformed(error: bson::error::Error) -> Error {
    Error::Protocol(error.to_string())
}

fn unexpected(response: &Response) -> Error {
    let text = format!("{response:?}");
    Error::Protocol(format!("unexpected response: {}", text.chars().take(100).collect::<String>()))
}
