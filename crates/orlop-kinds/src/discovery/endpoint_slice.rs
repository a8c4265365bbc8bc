//! EndpointSlice: a part of the endpoints behind a Service.

use std::net::IpAddr;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels, names, object_meta,
};
use serde_json::Value;

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{list, map, mark_repeated, present, text, texts},
    core::endpoints::{SHOWN_MAX, exempt_kubernetes_service, validate_app_protocol},
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, join_first, name},
    strategy::{RequestContext, Strategy},
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { tracks_generation: true, ..StrategyFlags::BUILTIN },
    columns: &COLUMNS,
    strategy: &EndpointSlice,
    ..BuiltinKind::new("discovery.k8s.io", "endpointslices")
};

const ENDPOINTS_MAX: usize = 1000;

const PORTS_MAX: usize = 20_000;

const ADDRESSES_MAX: usize = 100;

const HINTS_MAX: usize = 8;

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("AddressType"),
        ColumnDefinition::text("Ports"),
        ColumnDefinition::text("Endpoints"),
        ColumnDefinition::AGE,
    ],
    cells: |object, now| {
        let port = |port: &Value| match (port.get("port").and_then(Value::as_i64), port.get("name")) {
            (Some(number), _) => number.to_string(),
            (None, Some(Value::String(name))) => name.clone(),
            _ => "*".to_owned(),
        };
        let ports: Vec<String> = list(object, "/ports").iter().map(port).collect();
        let addresses = list(object, "/endpoints").iter().flat_map(|endpoint| texts(endpoint, "/addresses"));
        let addresses: Vec<String> = addresses.map(str::to_owned).collect();
        vec![
            name(object),
            text(object, "/addressType").into(),
            join_first(&ports, SHOWN_MAX, "<unset>").into(),
            join_first(&addresses, SHOWN_MAX, "<unset>").into(),
            age(object, now),
        ]
    },
};

pub(crate) struct EndpointSlice;

impl Strategy for EndpointSlice {
    fn set_defaults(&self, object: &mut Value) {
        for port in defaulting::items_mut(object, "ports") {
            defaulting::set_if_absent(port, "name", "");
            defaulting::set_if_absent(port, "protocol", "TCP");
        }
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value, _context: &RequestContext<'_>) {
        // Labels name the Service, so their change bumps the generation.
        let labels = |object: &Value| object_meta::of(object).get("labels").cloned();
        if labels(object) != labels(old) {
            let generation = object_meta::of(old).get("generation").and_then(Value::as_i64).unwrap_or(0);
            object["metadata"]["generation"] = (generation + 1).into();
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let root = FieldPath::nil();
        let types = &["FQDN", "IPv4", "IPv6"];
        let mut errors: Vec<FieldError> =
            validation::require_supported(object, "addressType", &root, types).into_iter().collect();
        let ports = list(object, "/ports");
        if ports.len() > PORTS_MAX {
            errors.push(FieldError::too_many(&root.child("ports"), ports.len(), PORTS_MAX));
        } else {
            errors.extend(validate_slice_ports(ports, &root.child("ports")));
        }
        let endpoints = list(object, "/endpoints");
        if endpoints.len() > ENDPOINTS_MAX {
            errors.push(FieldError::too_many(&root.child("endpoints"), endpoints.len(), ENDPOINTS_MAX));
            return errors;
        }
        let family = text(object, "/addressType");
        errors.extend(validation::validate_items(object, "endpoints", &root, |item, path| {
            validate_endpoint(item, family, path)
        }));
        exempt_kubernetes_service(object, errors)
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        validation::validate_immutable(object, old, "addressType", &FieldPath::nil()).into_iter().collect()
    }
}

fn validate_slice_ports(ports: &[Value], path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let repeated = mark_repeated(ports, |port| text(port, "/name"));
    for ((index, port), repeated) in ports.iter().enumerate().zip(repeated) {
        let path = path.index(index);
        let name = text(port, "/name");
        if !name.is_empty() {
            errors.extend(validation::validate_dns_label(name, &path.child("name")));
        }
        if repeated {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
        errors.extend(validation::require_supported(port, "protocol", &path, validation::PROTOCOLS));
        errors.extend(validate_app_protocol(port, &path));
    }
    errors
}

fn validate_endpoint(endpoint: &Value, family: &str, path: &FieldPath) -> Vec<FieldError> {
    let addresses = texts(endpoint, "/addresses");
    let at = path.child("addresses");
    let mut errors = Vec::new();
    if addresses.is_empty() {
        errors.push(FieldError::required(&at, "").declaratively());
    } else if addresses.len() > ADDRESSES_MAX {
        errors.push(FieldError::too_many(&at, addresses.len(), ADDRESSES_MAX));
    }
    for (index, address) in addresses.into_iter().enumerate() {
        errors.extend(validate_slice_address(address, family, &at, index));
    }
    if let Some(node) = present(endpoint, "/nodeName").and_then(Value::as_str) {
        errors.extend(validation::validate_dns_subdomain(node, &path.child("nodeName")));
    }
    errors.extend(labels::validate(map(endpoint, "/deprecatedTopology"), &path.child("deprecatedTopology")));
    if let Some(host) = present(endpoint, "/hostname").and_then(Value::as_str) {
        errors.extend(validation::validate_dns_label(host, &path.child("hostname")));
    }
    let zones = list(endpoint, "/hints/forZones");
    let zones_path = path.child("hints").child("forZones");
    if zones.len() > HINTS_MAX {
        errors.push(FieldError::too_many(&zones_path, zones.len(), HINTS_MAX));
        return errors;
    }
    errors.extend(validation::validate_unique(zones, "name", &zones_path));
    for (index, zone) in zones.iter().enumerate() {
        let name = text(zone, "/name");
        errors.extend(validation::invalid_for_each(
            &zones_path.index(index).child("name"),
            name,
            names::label_value(name),
        ));
    }
    errors
}

fn validate_slice_address(address: &str, family: &str, path: &FieldPath, index: usize) -> Vec<FieldError> {
    if !matches!(family, "IPv4" | "IPv6") {
        return Vec::new();
    }
    let at = path.index(index);
    let mut errors = validation::validate_ip(address, &at);
    if let Ok(parsed) = address.parse::<IpAddr>() {
        if parsed.is_ipv6() != (family == "IPv6") {
            errors.push(FieldError::invalid(path, address, format!("must be an {family} address")));
        }
        errors.extend(validation::validate_endpoint_ip(address, &at));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn addresses_must_match_the_address_type() {
        let mut good = json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]});
        EndpointSlice.set_defaults(&mut good);
        assert_eq!(good["ports"][0], json!({"port": 80, "name": "", "protocol": "TCP"}));
        assert!(messages(EndpointSlice.validate(&good)).is_empty());
        assert_eq!(messages(EndpointSlice.validate(&json!({}))), ["addressType: Required value"]);
        assert_eq!(
            messages(
                EndpointSlice.validate(
                    &json!({"addressType": "IPv6", "endpoints": [{"addresses": ["10.0.0.1"]}, {}]})
                )
            ),
            [
                r#"endpoints[0].addresses: Invalid value: "10.0.0.1": must be an IPv6 address"#,
                "endpoints[1].addresses: Required value",
            ]
        );
        let changed = json!({"addressType": "IPv6"});
        assert_eq!(
            messages(EndpointSlice.validate_update(&changed, &good)),
            [r#"addressType: Invalid value: "IPv6": field is immutable"#]
        );
    }

    #[test]
    fn row_shows_ports_and_addresses() {
        let slice = json!({"addressType": "IPv4", "ports": [{"port": 80}, {"name": "x"}, {}], "endpoints": [{"addresses": ["a"]}]});
        assert_eq!(row(&COLUMNS, &slice)[1..4], ["IPv4", "80,x,*", "a"]);
        assert_eq!(row(&COLUMNS, &json!({}))[2..4], ["<unset>", "<unset>"]);
    }
}
