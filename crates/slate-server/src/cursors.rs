//! Open cursors: the rest of large results, shared by all connections.
//!
//! A result whose rest is small is buffered. A larger one is produced by a thread that holds its
//! snapshot and stays one batch ahead, so a cursor costs bounded memory however large its result. The rest of an
//! aggregation is always buffered; all cursors together have a limit.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use bson::RawDocumentBuf;
use parking_lot::Mutex;
use slate::{Engine, Error, Query, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connection::kibibytes;

/// Most open cursors.
const CURSORS_MAX: usize = 256;
/// Largest rest that is buffered without a thread, in bytes.
const BUFFERED_BYTES_MAX: usize = 2 << 20;
/// Most bytes that all cursors buffer.
const TOTAL_BYTES_MAX: usize = 512 << 20;
/// Documents of a batch if the client leaves it to us.
const BATCH_DOCUMENTS: usize = 1000;
/// Largest batch in bytes.
pub(crate) const BATCH_BYTES_MAX: usize = 8 << 20;
/// Time after which an unused cursor is closed.
const IDLE: Duration = Duration::from_secs(600);

type Batch = Vec<RawDocumentBuf>;

/// The first batch of a result, and the cursor for the rest; 0 is none.
#[derive(Debug, Default)]
pub(crate) struct FirstBatch {
    pub(crate) documents: Batch,
    pub(crate) cursor: i64,
}

#[derive(Debug)]
pub(crate) struct Cursors {
    open: Mutex<HashMap<i64, Open>>,
    /// KiB that cursors may still buffer.
    memory: Arc<Semaphore>,
}

#[derive(Debug)]
struct Open {
    namespace: String,
    rest: Rest,
    used: Instant,
}

#[derive(Debug)]
enum Rest {
    Buffered { buffer: VecDeque<RawDocumentBuf>, _permit: OwnedSemaphorePermit },
    Streamed { batches: mpsc::Receiver<Result<Batch>>, buffer: VecDeque<RawDocumentBuf> },
}

impl Default for Cursors {
    fn default() -> Self {
        Self::with_memory(TOTAL_BYTES_MAX)
    }
}

impl Cursors {
    fn with_memory(bytes: usize) -> Self {
        Self { open: Mutex::default(), memory: Arc::new(Semaphore::new(kibibytes(bytes) as usize)) }
    }

    /// Runs a query and returns its first batch.
    pub(crate) fn open(
        &self,
        engine: &Engine,
        namespace: &str,
        query: &Query,
        batch: usize,
    ) -> Result<FirstBatch> {
        let size = if batch == 0 { BATCH_DOCUMENTS } else { batch };
        let (mut first, mut rest) = (Vec::new(), VecDeque::new());
        let (mut first_bytes, mut rest_bytes) = (0, 0);
        let mut finished = true;
        engine.visit(namespace, query, &mut |document| {
            let document = project(query, document);
            let length = document.as_bytes().len();
            if rest.is_empty()
                && first.len() < size
                && (first.is_empty() || first_bytes + length <= BATCH_BYTES_MAX)
            {
                first_bytes += length;
                first.push(document);
            } else {
                rest_bytes += length;
                rest.push_back(document);
                finished = rest_bytes <= BUFFERED_BYTES_MAX;
            }
            Ok(finished)
        })?;
        if finished {
            let cursor = if rest.is_empty() { 0 } else { self.register(namespace, self.buffered(rest)?)? };
            return Ok(FirstBatch { documents: first, cursor });
        }
        // Nothing has been answered yet, so a new snapshot is as good.
        drop((first, rest));
        let batches = stream(engine.clone(), namespace.to_owned(), query.clone());
        let mut rest = Rest::Streamed { batches, buffer: VecDeque::new() };
        let (documents, done) = rest.take(size)?;
        let cursor = if done { 0 } else { self.register(namespace, rest)? };
        Ok(FirstBatch { documents, cursor })
    }

    /// Opens a cursor over documents that are computed already, as those of an aggregation.
    pub(crate) fn open_buffered(
        &self,
        namespace: &str,
        mut documents: Batch,
        batch: usize,
    ) -> Result<FirstBatch> {
        let size = if batch == 0 { BATCH_DOCUMENTS } else { batch };
        if documents.len() <= size {
            return Ok(FirstBatch { documents, cursor: 0 });
        }
        let rest = documents.split_off(size);
        let cursor = self.register(namespace, self.buffered(rest.into())?)?;
        Ok(FirstBatch { documents, cursor })
    }

    fn buffered(&self, buffer: VecDeque<RawDocumentBuf>) -> Result<Rest> {
        let bytes = buffer.iter().map(|document| document.as_bytes().len()).sum();
        let permit = Arc::clone(&self.memory).try_acquire_many_owned(kibibytes(bytes));
        let permit = permit.map_err(|_| {
            Error::TooLarge(format!(
                "open cursors hold at most {TOTAL_BYTES_MAX} bytes; read them to their end, or ask for larger batches"
            ))
        })?;
        Ok(Rest::Buffered { buffer, _permit: permit })
    }

    /// Opens a cursor without handing out any documents. Returns it.
    pub(crate) fn open_unread(&self, engine: &Engine, namespace: &str, query: &Query) -> Result<i64> {
        engine.collection(namespace)?;
        let batches = stream(engine.clone(), namespace.to_owned(), query.clone());
        self.register(namespace, Rest::Streamed { batches, buffer: VecDeque::new() })
    }

    /// Returns the next batch and whether it was the last. `None`: no such cursor.
    pub(crate) fn next(&self, id: i64, batch: usize) -> Result<Option<(String, Batch, bool)>> {
        // Taken out, so that no other cursor waits for this one's thread.
        let Some(mut cursor) = self.open.lock().remove(&id) else { return Ok(None) };
        let size = if batch == 0 { BATCH_DOCUMENTS } else { batch };
        let (documents, done) = cursor.rest.take(size)?;
        let namespace = cursor.namespace.clone();
        if !done {
            cursor.used = Instant::now();
            self.open.lock().insert(id, cursor);
        }
        Ok(Some((namespace, documents, done)))
    }

    /// Closes a cursor. Returns false if there is none.
    pub(crate) fn close(&self, id: i64) -> bool {
        self.open.lock().remove(&id).is_some()
    }

    /// Closes idle cursors.
    pub(crate) fn sweep(&self) {
        self.open.lock().retain(|_, cursor| cursor.used.elapsed() < IDLE);
    }

    pub(crate) fn len(&self) -> usize {
        self.open.lock().len()
    }

    fn register(&self, namespace: &str, rest: Rest) -> Result<i64> {
        let mut open = self.open.lock();
        if open.len() >= CURSORS_MAX {
            return Err(Error::TooLarge(format!("at most {CURSORS_MAX} cursors can be open")));
        }
        loop {
            // Unpredictable, so that one client cannot guess another's.
            let id = rand::random::<i64>() & i64::MAX;
            if id != 0 && !open.contains_key(&id) {
                open.insert(id, Open { namespace: namespace.to_owned(), rest, used: Instant::now() });
                return Ok(id);
            }
        }
    }
}

impl Rest {
    /// Takes up to `size` documents. True: there are no more.
    fn take(&mut self, size: usize) -> Result<(Batch, bool)> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        loop {
            let buffer = match self {
                Self::Buffered { buffer, .. } | Self::Streamed { buffer, .. } => buffer,
            };
            while let Some(document) = buffer.front() {
                let length = document.as_bytes().len();
                if batch.len() >= size || (!batch.is_empty() && bytes + length > BATCH_BYTES_MAX) {
                    return Ok((batch, false));
                }
                bytes += length;
                batch.extend(buffer.pop_front());
            }
            match self {
                Self::Buffered { .. } => return Ok((batch, true)),
                Self::Streamed { batches, buffer } => match batches.recv() {
                    Ok(next) => buffer.extend(next?),
                    Err(mpsc::RecvError) => return Ok((batch, true)),
                },
            }
        }
    }
}

/// Starts a thread that runs a query and sends its documents in batches.
fn stream(engine: Engine, namespace: String, query: Query) -> mpsc::Receiver<Result<Batch>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let sender = Arc::new(sender);
    let worker = Arc::clone(&sender);
    let started = std::thread::Builder::new().name("slate-cursor".to_owned()).spawn(move || {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        // The client's pace decides, not the clock of one request.
        let query = Query { deadline: None, ..query };
        let result = engine.visit(&namespace, &query, &mut |document| {
            let document = project(&query, document);
            bytes += document.as_bytes().len();
            batch.push(document);
            if bytes < BUFFERED_BYTES_MAX {
                return Ok(true);
            }
            bytes = 0;
            Ok(worker.send(Ok(std::mem::take(&mut batch))).is_ok())
        });
        // Nobody listens once the cursor is closed.
        let _ = match result {
            Ok(_) if batch.is_empty() => Ok(()),
            Ok(_) => worker.send(Ok(batch)),
            Err(error) => worker.send(Err(error)),
        };
    });
    if let Err(error) = started {
        let _ = sender.send(Err(Error::Store(format!("no thread for a cursor: {error}"))));
    }
    receiver
}

fn project(query: &Query, document: &bson::raw::RawDocument) -> RawDocumentBuf {
    match &query.projection {
        Some(projection) => projection.apply(document),
        None => document.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn buffered_rests_share_a_memory_limit_until_they_are_read_or_closed() {
        let cursors = Cursors::with_memory(64 << 10);
        let documents = || (0..41).map(|_| rawdoc! { "text": "x".repeat(1000) }).collect::<Batch>();
        let open = || cursors.open_buffered("db.c", documents(), 1).map(|first| first.cursor);
        let first = open().expect("a cursor");
        assert!(matches!(open(), Err(Error::TooLarge(_))));
        assert_eq!(cursors.len(), 1);
        assert!(cursors.close(first));
        let second = open().expect("a cursor");
        let (_, rest, done) = cursors.next(second, 1000).expect("documents").expect("a cursor");
        assert!(done && rest.len() == 40);
        open().expect("what is read to its end holds nothing");
    }
}
