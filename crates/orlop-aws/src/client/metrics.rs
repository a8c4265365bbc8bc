//! Metrics of calls.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    service: &'static str,
    op_type: &'static str,
    op_id: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestError {
    service: &'static str,
    op_id: &'static str,
    status_code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BridgeCall {
    service: &'static str,
    operation: &'static str,
    code: String,
}

/// Counts of calls, under ACK's names and the Bridge's. Clones share their values.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallMetrics {
    requests: Family<Request, Counter>,
    errors: Family<RequestError, Counter>,
    bridge: Family<BridgeCall, Counter>,
}

impl CallMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("ack_outbound_api_requests", "Calls of AWS", self.requests.clone());
        registry.register("ack_outbound_api_requests_error", "Calls of AWS that failed", self.errors.clone());
        registry.register("bridge_aws_calls", "Calls of AWS by the Bridge itself", self.bridge.clone());
    }

    /// Counts a call. The status of an error without an answer is 0.
    pub(super) fn observe(
        &self,
        of_bridge: bool,
        (service, operation): (&'static str, &'static str),
        code: &str,
        failed: Option<u16>,
    ) {
        let request = Request { service, op_type: operation_type(operation), op_id: operation };
        self.requests.get_or_create(&request).inc();
        if let Some(status_code) = failed {
            self.errors.get_or_create(&RequestError { service, op_id: operation, status_code }).inc();
        }
        if of_bridge {
            self.bridge.get_or_create(&BridgeCall { service, operation, code: code.to_owned() }).inc();
        }
    }
}

/// Type of an operation, in ACK's words.
fn operation_type(operation: &str) -> &'static str {
    let begins = |verbs: &[&str]| verbs.iter().any(|verb| operation.starts_with(verb));
    match operation {
        _ if begins(&["List", "GetApiMappings", "GetApis", "GetRoutes", "GetIntegrations"]) => "READ_MANY",
        _ if begins(&["Get", "Describe", "Head", "AssumeRole"]) => "READ_ONE",
        _ if begins(&["Create", "Request", "Import"]) => "CREATE",
        _ if begins(&["Delete", "Remove", "Untag", "Detach", "Disassociate"]) => "DELETE",
        _ => "UPDATE",
    }
}
