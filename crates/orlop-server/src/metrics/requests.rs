//! Request metrics: count, latency, size, in flight.
//!
//! One look-up finds all metrics of a label set; they are updated without locks but for the counts per code.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Error,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Instant,
};

use http_body::Body as _;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder},
    metrics::{
        MetricType,
        counter::ConstCounter,
        gauge::ConstGauge,
        histogram::{Histogram, exponential_buckets},
    },
};

use crate::{
    http::{
        body::{Body, BodyWrapper, PolledFrame},
        query::Query,
    },
    registry::Kinds,
    request::{Attributes, Subresource, Verb},
};

/// Kubernetes' latency buckets, in seconds.
const SECONDS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];

/// Pages with label sets of their own.
const PAGES: &[&str] =
    &["/healthz", "/livez", "/readyz", "/metrics", "/version", "/openapi/v2", "/openapi/v3", "/apis", "/api"];

/// Labels of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Labels {
    group: String,
    version: String,
    resource: String,
    subresource: String,
    verb: &'static str,
    scope: &'static str,
    dry_run: bool,
}

impl Labels {
    /// Returns the labels of a request, by Kubernetes' rules.
    pub(crate) fn of(attributes: &Attributes, path: &str, query: &Query, is_apply: bool) -> Self {
        if !attributes.is_resource_request {
            let page = PAGES.iter().find(|page| path.starts_with(**page)).copied().unwrap_or_default();
            let verb = if attributes.verb.is_read_only() { "GET" } else { "other" };
            return Self { subresource: page.to_owned(), verb, ..Self::default() };
        }
        let verb = match attributes.verb {
            _ if attributes.subresource.as_ref().is_some_and(Subresource::is_connect) => "CONNECT",
            Verb::Get => "GET",
            Verb::List => "LIST",
            Verb::Watch => "WATCH",
            Verb::Create => "POST",
            Verb::Update => "PUT",
            Verb::Patch if is_apply => "APPLY",
            Verb::Patch => "PATCH",
            Verb::Delete => "DELETE",
            Verb::DeleteCollection => "DELETECOLLECTION",
            Verb::Proxy | Verb::Other(_) => "other",
        };
        let scope = match (attributes.name.is_empty(), attributes.namespace.is_empty()) {
            (false, _) => "resource",
            (true, false) => "namespace",
            (true, true) => "cluster",
        };
        Self {
            group: attributes.group.clone(),
            version: attributes.version.clone(),
            resource: attributes.resource.clone(),
            subresource: attributes.subresource_name().to_owned(),
            verb,
            scope,
            dry_run: !query.text("dryRun").is_empty(),
        }
    }

    /// Returns true if the labels are of a served resource.
    fn is_known(&self, kinds: &Kinds) -> bool {
        if self.resource.is_empty() {
            return true;
        }
        let kind = kinds.get(&self.group, &self.version, &self.resource);
        kind.is_some_and(|kind| self.subresource.is_empty() || kind.subresource(&self.subresource).is_some())
    }

    fn pairs(&self) -> Vec<(&str, &str)> {
        vec![
            ("component", "apiserver"),
            ("group", &self.group),
            ("resource", &self.resource),
            ("scope", self.scope),
            ("subresource", &self.subresource),
            ("verb", self.verb),
            ("version", &self.version),
        ]
    }

    fn pairs_with_dry_run(&self) -> Vec<(&str, &str)> {
        let mut pairs = self.pairs();
        pairs.push(("dry_run", if self.dry_run { "All" } else { "" }));
        pairs
    }
}

/// Metrics of a label set.
#[derive(Debug)]
struct Series {
    codes: Mutex<Vec<(u16, u64)>>,
    seconds: Histogram,
    /// Response bytes, of gets and lists only.
    sizes: Histogram,
    /// Long-running requests that are open.
    open: AtomicI64,
    /// Events sent to watches, and their bytes.
    events: AtomicU64,
    event_bytes: AtomicU64,
}

impl Default for Series {
    fn default() -> Self {
        Self {
            codes: Mutex::default(),
            seconds: Histogram::new(SECONDS),
            sizes: Histogram::new(exponential_buckets(1000.0, 10.0, 7)),
            open: AtomicI64::new(0),
            events: AtomicU64::new(0),
            event_bytes: AtomicU64::new(0),
        }
    }
}

impl Series {
    fn ended(&self, code: u16, started: Instant, bytes: Option<u64>) {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        match codes.iter_mut().find(|(known, _)| *known == code) {
            Some((_, count)) => *count += 1,
            None => codes.push((code, 1)),
        }
        drop(codes);
        self.seconds.observe(started.elapsed().as_secs_f64());
        if let Some(bytes) = bytes {
            self.sizes.observe(bytes as f64);
        }
    }
}

/// Request metrics by labels.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    series: RwLock<HashMap<Labels, Arc<Series>>>,
    mutating: Arc<AtomicI64>,
    reading: Arc<AtomicI64>,
}

/// A request in flight; counted until dropped.
#[derive(Debug)]
pub(crate) struct Running(Arc<AtomicI64>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Requests {
    /// Counts a request as in flight, unless it is long-running.
    pub(crate) fn begin(&self, attributes: &Attributes) -> Option<Running> {
        if attributes.is_long_running() {
            return None;
        }
        let running = if attributes.verb.is_read_only() { &self.reading } else { &self.mutating };
        running.fetch_add(1, Relaxed);
        Some(Running(running.clone()))
    }

    /// Records a response. A streamed one is recorded when its body ends.
    pub(crate) fn end(
        &self,
        labels: Labels,
        kinds: impl FnOnce() -> Arc<Kinds>,
        started: Instant,
        code: u16,
        body: Body,
    ) -> Body {
        let sized = matches!(labels.verb, "GET" | "LIST");
        let watches = labels.verb == "WATCH";
        let series = self.of(labels, kinds);
        if let Some(length) = body.exact_length() {
            series.ended(code, started, sized.then_some(length));
            return body;
        }
        series.open.fetch_add(i64::from(watches), Relaxed);
        Body::Wrapped(Box::new(Measured { body, series, started, code, bytes: 0, watches }))
    }

    fn of(&self, labels: Labels, kinds: impl FnOnce() -> Arc<Kinds>) -> Arc<Series> {
        if let Some(series) = self.series.read().unwrap_or_else(PoisonError::into_inner).get(&labels) {
            return series.clone();
        }
        // Requests for unknown resources share one label set.
        let known = labels.is_known(&kinds());
        let labels = if known { labels } else { Labels { verb: labels.verb, ..Labels::default() } };
        self.series.write().unwrap_or_else(PoisonError::into_inner).entry(labels).or_default().clone()
    }
}

/// A body that counts its frames, and records its request when it ends.
#[derive(Debug)]
struct Measured {
    body: Body,
    series: Arc<Series>,
    started: Instant,
    code: u16,
    bytes: u64,
    watches: bool,
}

impl BodyWrapper for Measured {
    fn inner_mut(&mut self) -> &mut Body {
        &mut self.body
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        if let Body::Watch(events) = &mut self.body {
            return events.poll_chunk(cx).map(|chunk| {
                let (data, events) = chunk?;
                self.count(&data, events);
                Some(Ok(http_body::Frame::data(data)))
            });
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.count(data, 1);
        }
        polled
    }
}

impl Measured {
    fn count(&mut self, data: &[u8], events: u64) {
        self.bytes += data.len() as u64;
        if self.watches {
            self.series.events.fetch_add(events, Relaxed);
            self.series.event_bytes.fetch_add(data.len() as u64, Relaxed);
        }
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        self.series.open.fetch_sub(i64::from(self.watches), Relaxed);
        self.series.ended(self.code, self.started, (!self.watches).then_some(self.bytes));
    }
}

/// Collector of request metrics.
#[derive(Debug)]
pub(super) struct Collected(pub(super) Arc<Requests>);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let series: BTreeMap<Labels, Arc<Series>> =
            self.0.series.read().unwrap_or_else(PoisonError::into_inner).clone().into_iter().collect();
        requests(
            &series,
            encoder.encode_descriptor(
                "apiserver_request",
                "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, \
                 scope, component, and HTTP response code.",
                None,
                MetricType::Counter,
            )?,
        )?;
        let mut family = encoder.encode_descriptor(
            "apiserver_request_duration_seconds",
            "Response latency distribution in seconds for each verb, dry run value, group, version, resource, \
             subresource, scope and component.",
            None,
            MetricType::Histogram,
        )?;
        for (labels, series) in &series {
            series.seconds.encode(family.encode_family(&labels.pairs_with_dry_run())?)?;
        }
        let mut family = encoder.encode_descriptor(
            "apiserver_response_sizes",
            "Response size distribution in bytes for each group, version, verb, resource, subresource, scope and \
             component.",
            None,
            MetricType::Histogram,
        )?;
        for (labels, series) in series.iter().filter(|(labels, _)| matches!(labels.verb, "GET" | "LIST")) {
            series.sizes.encode(family.encode_family(&labels.pairs())?)?;
        }
        let mut family = encoder.encode_descriptor(
            "apiserver_longrunning_requests",
            "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, \
             scope and component. Not all requests are tracked this way.",
            None,
            MetricType::Gauge,
        )?;
        for (labels, series) in series.iter().filter(|(labels, _)| labels.verb == "WATCH") {
            let open = ConstGauge::new(series.open.load(Relaxed));
            open.encode(family.encode_family(&labels.pairs())?)?;
        }
        let mut family = encoder.encode_descriptor(
            "apiserver_current_inflight_requests",
            "Number of currently used inflight request limit of this apiserver per request kind.",
            None,
            MetricType::Gauge,
        )?;
        for (kind, count) in [("mutating", &self.0.mutating), ("readOnly", &self.0.reading)] {
            let labels = [("request_kind", kind)];
            ConstGauge::new(count.load(Relaxed)).encode(family.encode_family(&labels)?)?;
        }
        let events = "Number of events sent in watch clients";
        let family =
            encoder.encode_descriptor("apiserver_watch_events", events, None, MetricType::Counter)?;
        watched(&series, family, |series| series.events.load(Relaxed))?;
        let bytes = "Bytes of events sent in watch clients";
        let name = "apiserver_watch_events_bytes";
        let family = encoder.encode_descriptor(name, bytes, None, MetricType::Counter)?;
        watched(&series, family, |series| series.event_bytes.load(Relaxed))
    }
}

fn requests(series: &BTreeMap<Labels, Arc<Series>>, mut family: MetricEncoder<'_>) -> Result<(), Error> {
    for (labels, series) in series {
        let codes = series.codes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (code, count) in codes {
            let code = code.to_string();
            let mut pairs = labels.pairs_with_dry_run();
            pairs.push(("code", &code));
            ConstCounter::new(count).encode(family.encode_family(&pairs)?)?;
        }
    }
    Ok(())
}

/// Encodes a sum over the watches of each resource.
fn watched(
    series: &BTreeMap<Labels, Arc<Series>>,
    mut family: MetricEncoder<'_>,
    count: impl Fn(&Series) -> u64,
) -> Result<(), Error> {
    let mut sums: BTreeMap<[&str; 3], u64> = BTreeMap::new();
    for (labels, series) in series.iter().filter(|(labels, _)| labels.verb == "WATCH") {
        *sums.entry([&labels.group, &labels.version, &labels.resource]).or_default() += count(series);
    }
    for ([group, version, resource], sum) in sums {
        let pairs = [("group", group), ("version", version), ("resource", resource)];
        ConstCounter::new(sum).encode(family.encode_family(&pairs)?)?;
    }
    Ok(())
}
