//! Classification of requests, and the levels as they are configured.

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use arc_swap::ArcSwap;
use http::HeaderValue;
use orlop_auth::request::Attributes;
use tokio::sync::Notify;

use crate::{
    books::{Books, Entry},
    clock::Clock,
    configuration::{CATCH_ALL, Distinguisher, EXEMPT, FlowSchema, PriorityLevel},
    dealer::Dealer,
    estimate::{Estimator, ListWork},
    level::{Description, Level, Started},
    queue_set::{Arrival, Queuing},
    statistics::ListStatistics,
    watches::Watches,
};

/// Name of the level and schema of requests of the process itself.
pub(crate) const IN_PROCESS: &str = "in-process";
/// Seats of requests of the process itself, besides those of clients: neither can starve the other.
const IN_PROCESS_SEATS: usize = 200;
/// Requests of the process itself that may wait in a queue.
const IN_PROCESS_QUEUE_LENGTH_MAX: usize = 4096;

/// A FlowSchema and its level, which a request was classified as.
#[derive(Debug)]
pub struct Classified {
    /// Name of the FlowSchema.
    pub schema: Arc<str>,
    /// UID of the FlowSchema, ready for a header; empty if there is no object.
    pub schema_uid: HeaderValue,
    /// UID of the PriorityLevelConfiguration; empty if there is no object.
    pub level_uid: HeaderValue,
    pub(crate) level: Arc<Level>,
    /// Index of the schema in the metrics of the level.
    flow: usize,
    distinguisher: Option<Distinguisher>,
    request_seats_max: usize,
    /// True if flows have queues of their own.
    has_queues: bool,
}

impl Classified {
    fn new(
        schema: &FlowSchema,
        level: &Arc<Level>,
        level_uid: &str,
        queuing: Queuing,
        seats_max: usize,
    ) -> Self {
        let name: Arc<str> = schema.name.as_str().into();
        Self {
            schema_uid: header_value(&schema.uid),
            level_uid: header_value(level_uid),
            level: level.clone(),
            flow: level.lock().metrics.index_of(&name),
            schema: name,
            distinguisher: schema.distinguisher,
            request_seats_max: seats_max,
            has_queues: matches!(queuing, Queuing::Queue { dealer, .. } if dealer.deck() > 1),
        }
    }

    /// Returns the name of the priority level.
    pub fn level_name(&self) -> &str {
        &self.level.name
    }

    fn distinguisher_of<'a>(&self, attributes: &'a Attributes) -> &'a str {
        match self.distinguisher {
            Some(Distinguisher::ByUser) if self.has_queues => &attributes.user.name,
            Some(Distinguisher::ByNamespace) if self.has_queues => &attributes.namespace,
            _ => "",
        }
    }
}

fn header_value(uid: &str) -> HeaderValue {
    HeaderValue::from_str(uid).unwrap_or(HeaderValue::from_static(""))
}

/// A change of a FlowSchema's condition Dangling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DanglingUpdate {
    /// Name of the FlowSchema.
    pub schema: String,
    /// Status of the condition.
    pub status: &'static str,
    /// Reason of the condition.
    pub reason: &'static str,
    /// Message of the condition.
    pub message: String,
}

impl DanglingUpdate {
    /// Returns the change that a schema needs; `None` if its condition is right.
    pub fn of(schema: &FlowSchema, is_found: bool) -> Option<Self> {
        let references = format!(
            "This FlowSchema references the PriorityLevelConfiguration object named {:?}",
            schema.level
        );
        let (status, reason, end) = match is_found {
            true => ("False", "Found", "and it exists"),
            false => ("True", "NotFound", "but there is no such object"),
        };
        let message = format!("{references} {end}");
        let is_right = schema.dangling.as_ref().is_some_and(|(old_status, old_reason, old_message)| {
            (old_status.as_str(), old_reason.as_str(), old_message) == (status, reason, &message)
        });
        (!is_right).then(|| Self { schema: schema.name.clone(), status, reason, message })
    }
}

/// FlowSchemas in the order in which they are matched.
#[derive(Debug)]
struct Classes {
    schemas: Vec<(FlowSchema, Arc<Classified>)>,
    catch_all: Arc<Classified>,
}

/// State that changes together.
#[derive(Debug)]
struct State {
    books: Books,
    levels: Vec<PriorityLevel>,
    schemas: Vec<FlowSchema>,
    dangling: Vec<DanglingUpdate>,
}

/// Flow control of a server.
#[derive(Debug)]
pub struct Controller {
    state: Mutex<State>,
    classes: ArcSwap<Classes>,
    in_process: Arc<Classified>,
    hasher: RandomState,
    release_needed: Arc<Notify>,
    clock: Arc<dyn Clock>,
    /// Sizes of collections.
    pub statistics: ListStatistics,
    /// Watches that are open.
    pub watches: Watches,
}

impl Controller {
    /// Returns flow control of a server with some seats, with only the mandatory configuration.
    pub fn new(seats: usize, clock: Arc<dyn Clock>) -> Self {
        let release_needed = Arc::new(Notify::new());
        let mut books = Books::new(seats, clock.clone(), release_needed.clone());
        books.configure(&[]);
        let in_process = Arc::new(in_process(&clock, &release_needed));
        let classes =
            classes(&books, &[]).unwrap_or(Classes { schemas: Vec::new(), catch_all: in_process.clone() });
        let state = State { books, levels: Vec::new(), schemas: Vec::new(), dangling: Vec::new() };
        Self {
            state: Mutex::new(state),
            classes: ArcSwap::from_pointee(classes),
            in_process,
            hasher: RandomState::new(),
            release_needed,
            clock,
            statistics: ListStatistics::default(),
            watches: Watches::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // === Requests ===

    /// Classifies a request of a client.
    pub fn classify(&self, attributes: &Attributes) -> Arc<Classified> {
        let classes = self.classes.load();
        let matching = classes
            .schemas
            .iter()
            .find(|(schema, _)| schema.rules.iter().any(|rule| rule.matches(attributes)));
        matching.map_or_else(|| classes.catch_all.clone(), |(_, classified)| classified.clone())
    }

    /// Returns the class of requests of the process itself.
    pub fn in_process(&self) -> &Arc<Classified> {
        &self.in_process
    }

    /// Decides about a request.
    pub fn start(
        &self,
        classified: &Classified,
        attributes: &Attributes,
        path: &str,
        list: impl FnOnce() -> ListWork,
    ) -> Started {
        let estimator = Estimator { statistics: &self.statistics, watches: &self.watches };
        let (estimate, watches) = estimator.estimate(attributes, list, classified.request_seats_max);
        let distinguisher = classified.distinguisher_of(attributes);
        let hash = match classified.has_queues {
            true => self.hasher.hash_one((&*classified.schema, distinguisher)),
            false => 0,
        };
        let arrival = Arrival { estimate, hash, flow: classified.flow, distinguisher };
        classified.level.start(arrival, watches, |text| {
            let description = Description {
                user: &attributes.user.name,
                verb: attributes.verb.as_str(),
                path,
                namespace: &attributes.namespace,
                name: &attributes.name,
                group: &attributes.group,
                version: &attributes.version,
                resource: &attributes.resource,
                subresource: attributes.subresource_name(),
            };
            description.write(text);
        })
    }

    // === Configuration ===

    /// Puts a configuration in force: for every request that arrives after this returns.
    pub fn configure(&self, levels: Vec<PriorityLevel>, mut schemas: Vec<FlowSchema>) {
        let state = &mut *self.state();
        let is_found = |schema: &FlowSchema| levels.iter().any(|level| level.name == schema.level);
        let found: Vec<bool> = schemas.iter().map(is_found).collect();
        let updates =
            schemas.iter().zip(&found).filter_map(|(schema, found)| DanglingUpdate::of(schema, *found));
        state.dangling = updates.collect();
        for schema in &mut schemas {
            schema.dangling = None;
        }
        // A change of a status alone changes nothing here.
        if state.levels == levels && state.schemas == schemas {
            return;
        }
        state.books.configure(&levels);
        (state.levels, state.schemas) = (levels, schemas);
        self.publish(state);
    }

    fn publish(&self, state: &State) {
        if let Some(classes) = classes(&state.books, &state.schemas) {
            self.classes.store(Arc::new(classes));
        }
    }

    /// Returns the conditions that FlowSchemas lack.
    pub fn dangling_updates(&self) -> Vec<DanglingUpdate> {
        self.state().dangling.clone()
    }

    /// Divides the seats by the demand since the last time. To be called every ten seconds.
    pub fn divide_seats(&self) {
        let state = &mut *self.state();
        let is_drained = |entry: &Entry| entry.is_quiescing && entry.level.lock().is_idle();
        if state.books.levels.values().any(is_drained) {
            let levels = std::mem::take(&mut state.levels);
            state.books.configure(&levels);
            state.levels = levels;
            self.publish(state);
        } else {
            state.books.divide();
        }
    }

    // === Time ===

    /// Completes when a request waits for seats whose release has a time.
    pub async fn release_needed(&self) {
        self.release_needed.notified().await;
    }

    /// Frees seats whose time has come. Returns the time at which to call this again.
    pub fn release_due(&self) -> Option<Instant> {
        self.levels().iter().filter_map(|level| level.release_due()).min()
    }

    /// Returns the time.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    // === What is in force ===

    fn levels(&self) -> Vec<Arc<Level>> {
        let state = self.state();
        let configured = state.books.levels.values().map(|entry| entry.level.clone());
        configured.chain([self.in_process.level.clone()]).collect()
    }

    /// Calls a function with each configured level, and with the level of the process itself.
    pub(crate) fn each_level(&self, mut call: impl FnMut(&Arc<Level>, Option<&Entry>)) {
        let state = self.state();
        for entry in state.books.levels.values() {
            call(&entry.level, Some(entry));
        }
        call(&self.in_process.level, None);
    }

    pub(crate) fn fair_fraction(&self) -> f64 {
        self.state().books.fair_fraction
    }
}

/// Returns the class of requests of the process itself. It has no objects, and no part in the division of seats.
fn in_process(clock: &Arc<dyn Clock>, release_needed: &Arc<Notify>) -> Classified {
    let queuing = match Dealer::new(64, 6) {
        Some(dealer) => Queuing::Queue { dealer, length_max: IN_PROCESS_QUEUE_LENGTH_MAX },
        None => Queuing::Reject,
    };
    let level = Level::new(IN_PROCESS, queuing, IN_PROCESS_SEATS, clock.clone(), release_needed.clone());
    let schema = FlowSchema {
        name: IN_PROCESS.to_owned(),
        uid: String::new(),
        level: IN_PROCESS.to_owned(),
        precedence: 0,
        distinguisher: Some(Distinguisher::ByUser),
        rules: Vec::new(),
        dangling: None,
    };
    Classified::new(&schema, &Arc::new(level), "", queuing, 1)
}

/// Orders FlowSchemas by precedence, then by name, and supplies the mandatory ones that are missing. Leaves out those
/// without a level.
fn classes(books: &Books, schemas: &[FlowSchema]) -> Option<Classes> {
    let is_usable =
        |schema: &&FlowSchema| books.levels.get(&schema.level).is_some_and(|entry| !entry.is_quiescing);
    let mut ordered: Vec<FlowSchema> = schemas.iter().filter(is_usable).cloned().collect();
    ordered.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
    for mandatory in FlowSchema::mandatory() {
        if ordered.iter().all(|schema| schema.name != mandatory.name) {
            let place = if mandatory.name == EXEMPT { 0 } else { ordered.len() };
            ordered.insert(place, mandatory);
        }
    }
    let classified = |schema: FlowSchema| {
        let entry = books.levels.get(&schema.level)?;
        let (level, queuing) = (&entry.level, entry.configured.queuing);
        let class =
            Classified::new(&schema, level, &entry.configured.uid, queuing, entry.request_seats_max());
        Some((schema, Arc::new(class)))
    };
    let schemas: Vec<_> = ordered.into_iter().filter_map(classified).collect();
    let (_, catch_all) = schemas.iter().find(|(schema, _)| schema.name == CATCH_ALL)?;
    Some(Classes { catch_all: catch_all.clone(), schemas })
}
