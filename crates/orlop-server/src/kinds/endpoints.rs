//! Endpoints and endpoint slices: where the pods behind a service are.

use std::net::IpAddr;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels, names, object_meta,
};
use serde_json::Value;

use super::{
    check,
    columns::{Heading, Table, few, name},
    fill,
    read::{integer, list, map, present, repeats, text, texts},
};
use crate::{
    registry::Hooks,
    table::{Columns, age},
};

/// Endpoints shown in a row.
const SHOWN_MAX: usize = 3;
const ENDPOINTS_MAX: usize = 1000;
const PORTS_MAX: usize = 20_000;
const ADDRESSES_MAX: usize = 100;
const HINTS_MAX: usize = 8;

static ENDPOINTS: Table = Table {
    headings: &[Heading::NAME, Heading::text("Endpoints"), Heading::AGE],
    cells: |object, now| {
        let subsets = list(object, "/subsets");
        let shown: Vec<String> = subsets.iter().flat_map(targets).collect();
        let none = if subsets.is_empty() { "<none>" } else { "" };
        vec![name(object), few(&shown, SHOWN_MAX, none).into(), age(object, now)]
    },
};

/// Every address of a subset with each of its ports.
fn targets(subset: &Value) -> Vec<String> {
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

static SLICES: Table = Table {
    headings: &[
        Heading::NAME,
        Heading::text("AddressType"),
        Heading::text("Ports"),
        Heading::text("Endpoints"),
        Heading::AGE,
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
            few(&ports, SHOWN_MAX, "<unset>").into(),
            few(&addresses, SHOWN_MAX, "<unset>").into(),
            age(object, now),
        ]
    },
};

pub(super) struct Endpoints;

impl Hooks for Endpoints {
    fn default(&self, object: &mut Value) {
        for subset in fill::items(object, "subsets") {
            fill::items(subset, "ports").for_each(|port| fill::empty(port, "protocol", "TCP"));
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        unless_own(object, check::every(object, "subsets", &FieldPath::nil(), subset))
    }

    fn deprecation(&self) -> Option<String> {
        Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned())
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&ENDPOINTS)
    }
}

/// The server's own endpoint may be on this machine alone, where Kubernetes would not run.
fn unless_own(object: &Value, errors: Vec<FieldError>) -> Vec<FieldError> {
    let own =
        text(object, "/metadata/name") == "kubernetes" && text(object, "/metadata/namespace") == "default";
    errors.into_iter().filter(|error| !(own && error.detail == check::LOOPBACK)).collect()
}

fn subset(subset: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if list(subset, "/addresses").is_empty() && list(subset, "/notReadyAddresses").is_empty() {
        errors.push(FieldError::required(path, "must specify `addresses` or `notReadyAddresses`"));
    }
    errors.extend(check::every(subset, "addresses", path, address));
    errors.extend(check::every(subset, "notReadyAddresses", path, address));
    let several = list(subset, "/ports").len() > 1;
    errors.extend(check::every(subset, "ports", path, |item, path| port(item, several, path)));
    errors
}

fn address(address: &Value, path: &FieldPath) -> Vec<FieldError> {
    let ip = text(address, "/ip");
    let mut errors = check::ip(ip, &path.child("ip"));
    if !text(address, "/hostname").is_empty() {
        errors.extend(check::dns_label(text(address, "/hostname"), &path.child("hostname")));
    }
    if let Some(node) = present(address, "/nodeName").and_then(Value::as_str) {
        errors.extend(check::dns_subdomain(node, &path.child("nodeName")));
    }
    errors.extend(check::endpoint_ip(ip, &path.child("ip")));
    errors
}

fn port(port: &Value, needs_name: bool, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match text(port, "/name") {
        "" if needs_name => errors.push(FieldError::required(&path.child("name"), "")),
        "" => {}
        name => errors.extend(check::dns_label(name, &path.child("name"))),
    }
    let number = integer(port, "/port");
    errors.extend(check::each(&path.child("port"), number, check::port_number(number)));
    errors.extend(check::required_among(port, "protocol", path, check::PROTOCOLS));
    errors.extend(app_protocol(port, path));
    errors
}

fn app_protocol(port: &Value, path: &FieldPath) -> Vec<FieldError> {
    let protocol = present(port, "/appProtocol").and_then(Value::as_str);
    let check = |protocol| check::each(&path.child("appProtocol"), protocol, names::qualified_name(protocol));
    protocol.map(check).unwrap_or_default()
}

pub(super) struct EndpointSlice;

impl Hooks for EndpointSlice {
    fn default(&self, object: &mut Value) {
        for port in fill::items(object, "ports") {
            fill::absent(port, "name", "");
            fill::absent(port, "protocol", "TCP");
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        // Labels say whose endpoints these are, so that a change of them is one of what is wanted.
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
            check::required_among(object, "addressType", &root, types).into_iter().collect();
        let ports = list(object, "/ports");
        if ports.len() > PORTS_MAX {
            errors.push(FieldError::too_many(&root.child("ports"), ports.len(), PORTS_MAX));
        } else {
            errors.extend(slice_ports(ports, &root.child("ports")));
        }
        let endpoints = list(object, "/endpoints");
        if endpoints.len() > ENDPOINTS_MAX {
            errors.push(FieldError::too_many(&root.child("endpoints"), endpoints.len(), ENDPOINTS_MAX));
            return errors;
        }
        let family = text(object, "/addressType");
        errors.extend(check::every(object, "endpoints", &root, |item, path| endpoint(item, family, path)));
        unless_own(object, errors)
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        check::immutable(object, old, "addressType", &FieldPath::nil()).into_iter().collect()
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&SLICES)
    }
}

fn slice_ports(ports: &[Value], path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let repeated = repeats(ports, |port| text(port, "/name"));
    for ((index, port), repeated) in ports.iter().enumerate().zip(repeated) {
        let path = path.index(index);
        let name = text(port, "/name");
        if !name.is_empty() {
            errors.extend(check::dns_label(name, &path.child("name")));
        }
        if repeated {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
        errors.extend(check::required_among(port, "protocol", &path, check::PROTOCOLS));
        errors.extend(app_protocol(port, &path));
    }
    errors
}

fn endpoint(endpoint: &Value, family: &str, path: &FieldPath) -> Vec<FieldError> {
    let addresses = texts(endpoint, "/addresses");
    let at = path.child("addresses");
    let mut errors = Vec::new();
    if addresses.is_empty() {
        errors.push(FieldError::required(&at, "must contain at least 1 address"));
    } else if addresses.len() > ADDRESSES_MAX {
        errors.push(FieldError::too_many(&at, addresses.len(), ADDRESSES_MAX));
    }
    for (index, address) in addresses.into_iter().enumerate() {
        errors.extend(slice_address(address, family, &at, index));
    }
    if let Some(node) = present(endpoint, "/nodeName").and_then(Value::as_str) {
        errors.extend(check::dns_subdomain(node, &path.child("nodeName")));
    }
    errors.extend(labels::validate(map(endpoint, "/deprecatedTopology"), &path.child("deprecatedTopology")));
    if let Some(host) = present(endpoint, "/hostname").and_then(Value::as_str) {
        errors.extend(check::dns_label(host, &path.child("hostname")));
    }
    let zones = list(endpoint, "/hints/forZones");
    let zones_path = path.child("hints").child("forZones");
    if zones.len() > HINTS_MAX {
        errors.push(FieldError::too_many(&zones_path, zones.len(), HINTS_MAX));
        return errors;
    }
    errors.extend(check::duplicates(zones, "name", &zones_path));
    for (index, zone) in zones.iter().enumerate() {
        let name = text(zone, "/name");
        errors.extend(check::each(&zones_path.index(index).child("name"), name, names::label_value(name)));
    }
    errors
}

fn slice_address(address: &str, family: &str, path: &FieldPath, index: usize) -> Vec<FieldError> {
    if !matches!(family, "IPv4" | "IPv6") {
        return Vec::new();
    }
    let at = path.index(index);
    let mut errors = check::ip(address, &at);
    if let Ok(parsed) = address.parse::<IpAddr>() {
        if parsed.is_ipv6() != (family == "IPv6") {
            errors.push(FieldError::invalid(path, address, format!("must be an {family} address")));
        }
        errors.extend(check::endpoint_ip(address, &at));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::check::tests::told, super::columns::tests::row, *};

    #[test]
    fn endpoints_have_addresses_and_ports() {
        let refused = |subsets: Value| {
            let mut object = json!({"subsets": subsets});
            Endpoints.default(&mut object);
            told(Endpoints.validate(&object))
        };
        let own = json!({"metadata": {"name": "kubernetes", "namespace": "default"}, "subsets": [{"addresses": [{"ip": "127.0.0.1"}]}]});
        assert!(told(Endpoints.validate(&own)).is_empty());
        assert_eq!(refused(own["subsets"].clone()).len(), 1);
        assert!(refused(json!([{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}])).is_empty());
        assert_eq!(
            refused(json!([{"ports": [{"port": 0, "name": "a"}, {"port": 1}]}])),
            [
                "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`",
                "subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "subsets[0].ports[1].name: Required value",
            ]
        );
        assert_eq!(
            refused(json!([{"addresses": [{"ip": "0.0.0.0"}]}])),
            [r#"subsets[0].addresses[0].ip: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0)"#]
        );
    }

    #[test]
    fn a_slice_has_one_kind_of_address() {
        let mut good = json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]});
        EndpointSlice.default(&mut good);
        assert_eq!(good["ports"][0], json!({"port": 80, "name": "", "protocol": "TCP"}));
        assert!(told(EndpointSlice.validate(&good)).is_empty());
        assert_eq!(told(EndpointSlice.validate(&json!({}))), ["addressType: Required value"]);
        assert_eq!(
            told(
                EndpointSlice.validate(
                    &json!({"addressType": "IPv6", "endpoints": [{"addresses": ["10.0.0.1"]}, {}]})
                )
            ),
            [
                r#"endpoints[0].addresses: Invalid value: "10.0.0.1": must be an IPv6 address"#,
                "endpoints[1].addresses: Required value: must contain at least 1 address",
            ]
        );
        let changed = json!({"addressType": "IPv6"});
        assert_eq!(
            told(EndpointSlice.validate_update(&changed, &good)),
            [r#"addressType: Invalid value: "IPv6": field is immutable"#]
        );
    }

    #[test]
    fn rows_show_the_first_few() {
        let addresses: Vec<Value> = (1..=4).map(|n| json!({"ip": format!("10.0.0.{n}")})).collect();
        let object = json!({"metadata": {"name": "e"}, "subsets": [{"addresses": addresses, "ports": [{"port": 80}]}]});
        assert_eq!(row(&ENDPOINTS, &object)[1], "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 1 more...");
        assert_eq!(row(&ENDPOINTS, &json!({}))[1], "<none>");
        assert_eq!(
            row(&ENDPOINTS, &json!({"subsets": [{"addresses": [{"ip": "::1"}], "ports": [{"port": 1}]}]}))[1],
            "[::1]:1"
        );
        let slice = json!({"addressType": "IPv4", "ports": [{"port": 80}, {"name": "x"}, {}], "endpoints": [{"addresses": ["a"]}]});
        assert_eq!(row(&SLICES, &slice)[1..4], ["IPv4", "80,x,*", "a"]);
        assert_eq!(row(&SLICES, &json!({}))[2..4], ["<unset>", "<unset>"]);
    }
}
