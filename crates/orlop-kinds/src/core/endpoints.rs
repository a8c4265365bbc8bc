//! Endpoints: the addresses behind a Service.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::Value;

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{integer, list, present, text},
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, join_first, name},
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { allow_create_on_update: true, ..StrategyFlags::BUILTIN },
    columns: &COLUMNS,
    strategy: &Endpoints,
    ..BuiltinKind::new("", "endpoints")
};

/// Endpoints that a row shows.
pub(crate) const SHOWN_MAX: usize = 3;

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[ColumnDefinition::NAME, ColumnDefinition::text("Endpoints"), ColumnDefinition::AGE],
    cells: |object, now| {
        let subsets = list(object, "/subsets");
        let shown: Vec<String> = subsets.iter().flat_map(endpoints_of_subset).collect();
        let none = if subsets.is_empty() { "<none>" } else { "" };
        vec![name(object), join_first(&shown, SHOWN_MAX, none).into(), age(object, now)]
    },
};

/// Returns every address of a subset with each of its ports.
fn endpoints_of_subset(subset: &Value) -> Vec<String> {
    let addresses: Vec<&str> =
        list(subset, "/addresses").iter().map(|address| text(address, "/ip")).collect();
    let ports = list(subset, "/ports");
    if ports.is_empty() {
        return addresses.into_iter().map(str::to_owned).collect();
    }
    let with_port = |address: &&str, port: &Value| match address.contains(':') {
        true => format!("[{address}]:{}", integer(port, "/port")),
        false => format!("{address}:{}", integer(port, "/port")),
    };
    ports.iter().flat_map(|port| addresses.iter().map(move |address| with_port(address, port))).collect()
}

pub(crate) struct Endpoints;

impl Strategy for Endpoints {
    fn set_defaults(&self, object: &mut Value) {
        for subset in defaulting::items_mut(object, "subsets") {
            defaulting::items_mut(subset, "ports")
                .for_each(|port| defaulting::set_if_zero(port, "protocol", "TCP"));
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        exempt_kubernetes_service(
            object,
            validation::validate_items(object, "subsets", &FieldPath::nil(), validate_subset),
        )
    }

    fn deprecation_warning(&self) -> Option<String> {
        Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned())
    }
}

/// Drops the errors of the `kubernetes` service's endpoints: this server may listen on loopback only, as
/// kube-apiserver never does.
pub(crate) fn exempt_kubernetes_service(object: &Value, errors: Vec<FieldError>) -> Vec<FieldError> {
    let own =
        text(object, "/metadata/name") == "kubernetes" && text(object, "/metadata/namespace") == "default";
    errors.into_iter().filter(|error| !(own && error.detail == validation::LOOPBACK)).collect()
}

fn validate_subset(subset: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if list(subset, "/addresses").is_empty() && list(subset, "/notReadyAddresses").is_empty() {
        errors.push(FieldError::required(path, "must specify `addresses` or `notReadyAddresses`"));
    }
    errors.extend(validation::validate_items(subset, "addresses", path, validate_address));
    errors.extend(validation::validate_items(subset, "notReadyAddresses", path, validate_address));
    let several = list(subset, "/ports").len() > 1;
    errors.extend(validation::validate_items(subset, "ports", path, |item, path| {
        validate_port(item, several, path)
    }));
    errors
}

fn validate_address(address: &Value, path: &FieldPath) -> Vec<FieldError> {
    let ip = text(address, "/ip");
    let mut errors = validation::validate_ip(ip, &path.child("ip"));
    if !text(address, "/hostname").is_empty() {
        errors.extend(validation::validate_dns_label(text(address, "/hostname"), &path.child("hostname")));
    }
    if let Some(node) = present(address, "/nodeName").and_then(Value::as_str) {
        errors.extend(validation::validate_dns_subdomain(node, &path.child("nodeName")));
    }
    errors.extend(validation::validate_endpoint_ip(ip, &path.child("ip")));
    errors
}

fn validate_port(port: &Value, needs_name: bool, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match text(port, "/name") {
        "" if needs_name => errors.push(FieldError::required(&path.child("name"), "")),
        "" => {}
        name => errors.extend(validation::validate_dns_label(name, &path.child("name"))),
    }
    let number = integer(port, "/port");
    errors.extend(validation::invalid_for_each(
        &path.child("port"),
        number,
        validation::port_number_problems(number),
    ));
    errors.extend(validation::require_supported(port, "protocol", path, validation::PROTOCOLS));
    errors.extend(validate_app_protocol(port, path));
    errors
}

pub(crate) fn validate_app_protocol(port: &Value, path: &FieldPath) -> Vec<FieldError> {
    let protocol = present(port, "/appProtocol").and_then(Value::as_str);
    let check = |protocol| {
        validation::invalid_for_each(&path.child("appProtocol"), protocol, names::qualified_name(protocol))
    };
    protocol.map(check).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn subsets_require_addresses_and_valid_ports() {
        let validation_errors = |subsets: Value| {
            let mut object = json!({"subsets": subsets});
            Endpoints.set_defaults(&mut object);
            messages(Endpoints.validate(&object))
        };
        let own = json!({"metadata": {"name": "kubernetes", "namespace": "default"}, "subsets": [{"addresses": [{"ip": "127.0.0.1"}]}]});
        assert!(messages(Endpoints.validate(&own)).is_empty());
        assert_eq!(validation_errors(own["subsets"].clone()).len(), 1);
        assert!(
            validation_errors(json!([{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]))
                .is_empty()
        );
        assert_eq!(
            validation_errors(json!([{"ports": [{"port": 0, "name": "a"}, {"port": 1}]}])),
            [
                "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`",
                "subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "subsets[0].ports[1].name: Required value",
            ]
        );
        assert_eq!(
            validation_errors(json!([{"addresses": [{"ip": "0.0.0.0"}]}])),
            [r#"subsets[0].addresses[0].ip: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0)"#]
        );
    }

    #[test]
    fn row_shows_the_first_endpoints() {
        let addresses: Vec<Value> = (1..=4).map(|n| json!({"ip": format!("10.0.0.{n}")})).collect();
        let object = json!({"metadata": {"name": "e"}, "subsets": [{"addresses": addresses, "ports": [{"port": 80}]}]});
        assert_eq!(row(&COLUMNS, &object)[1], "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 1 more...");
        assert_eq!(row(&COLUMNS, &json!({}))[1], "<none>");
        assert_eq!(
            row(&COLUMNS, &json!({"subsets": [{"addresses": [{"ip": "::1"}], "ports": [{"port": 1}]}]}))[1],
            "[::1]:1"
        );
    }
}
