//! Prometheus metrics, under the names that dashboards of this API and of gRPC servers use.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{
    encoding::text::encode,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use prost_reflect::DescriptorPool;
use tonic::Code;

use super::build_info;

type Labels = Vec<(&'static str, String)>;

/// gRPC status codes by number, as metrics spell them.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// Counters of one method, resolved in advance.
#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) started: Counter,
    pub(crate) received: Counter,
    pub(crate) sent: Counter,
    pub(crate) seconds: Histogram,
    handled: [Counter; CODES.len()],
}

impl Method {
    pub(crate) fn handled(&self, code: Code) {
        if let Some(counter) = self.handled.get(code as usize) {
            counter.inc();
        }
    }
}

/// The registry, and handles to its metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    methods: HashMap<String, Arc<Method>>,
    unknown: Arc<Method>,
    service_status: Family<Labels, Gauge>,
}

#[derive(Default)]
struct Families {
    started: Family<Labels, Counter>,
    handled: Family<Labels, Counter>,
    received: Family<Labels, Counter>,
    sent: Family<Labels, Counter>,
}

impl Metrics {
    /// Registers all metrics, with zero counts for every method of the described services, so that rates are 0 and not
    /// absent.
    pub(crate) fn new(store: &orlop_store::Metrics, descriptors: &[&[u8]]) -> Self {
        let mut registry = Registry::default();
        store.register(&mut registry);
        let build: Family<Labels, Gauge> = Family::default();
        build.get_or_create(&build_info::labels()).set(1);
        registry.register("device_apiserver_build_info", "Build information", build);
        let service_status: Family<Labels, Gauge> = Family::default();
        registry.register(
            "device_apiserver_service_status",
            "Service status: 1 serving, 2 storage disconnected",
            service_status.clone(),
        );

        let families = Families::default();
        let seconds: Family<Labels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0005, 2.0, 15)));
        let method = |kind: &str, service: &str, name: &str| {
            let labels: Labels = vec![
                ("grpc_type", kind.to_owned()),
                ("grpc_service", service.to_owned()),
                ("grpc_method", name.to_owned()),
            ];
            let handled = CODES.map(|code| {
                let mut labels = labels.clone();
                labels.push(("grpc_code", code.to_owned()));
                families.handled.get_or_create_owned(&labels)
            });
            Arc::new(Method {
                started: families.started.get_or_create_owned(&labels),
                received: families.received.get_or_create_owned(&labels),
                sent: families.sent.get_or_create_owned(&labels),
                seconds: seconds.get_or_create_owned(&labels),
                handled,
            })
        };
        let mut methods = HashMap::new();
        for descriptors in descriptors {
            let Ok(pool) = DescriptorPool::decode(*descriptors) else { continue };
            for found in pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
                let kind = match (found.is_client_streaming(), found.is_server_streaming()) {
                    (false, false) => "unary",
                    (true, false) => "client_stream",
                    (false, true) => "server_stream",
                    (true, true) => "bidi_stream",
                };
                let service = found.parent_service().full_name().to_owned();
                let path = format!("/{service}/{}", found.name());
                methods.insert(path, method(kind, &service, found.name()));
            }
        }
        // Unknown methods share one series: a client must not be able to create labels.
        let unknown = method("unary", "unknown", "unknown");
        registry.register("grpc_server_started", "Number of calls started", families.started.clone());
        registry.register(
            "grpc_server_handled",
            "Number of calls completed, by code",
            families.handled.clone(),
        );
        registry.register(
            "grpc_server_msg_received",
            "Number of messages received",
            families.received.clone(),
        );
        registry.register("grpc_server_msg_sent", "Number of messages sent", families.sent.clone());
        registry.register("grpc_server_handling_seconds", "Duration of calls in seconds", seconds.clone());
        Self { registry: Mutex::new(registry), methods, unknown, service_status }
    }

    pub(crate) fn method(&self, path: &str) -> Arc<Method> {
        self.methods.get(path).unwrap_or(&self.unknown).clone()
    }

    pub(crate) fn service_status(&self, service: &str, serving: bool) {
        let labels = vec![("service", service.to_owned())];
        self.service_status.get_or_create(&labels).set(if serving { 1 } else { 2 });
    }

    /// Encodes the registry as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a string does not fail.
        let _ = encode(&mut text, &registry);
        text
    }
}
