//! Addresses of services: ranges that they come from, and each that is taken.

use std::net::IpAddr;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
    object_meta::IMMUTABLE,
};
use serde_json::Value;

use super::{
    check, ip_text,
    read::{list, map, present, text, texts},
    tables,
};
use crate::{registry::Hooks, table::Columns};

/// Ranges of a service's addresses, one for each family.
const RANGES_MAX: usize = 2;

pub(super) struct IpAddress;

impl Hooks for IpAddress {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let metadata = FieldPath::root("metadata");
        let mut errors = Vec::new();
        for field in ["generateName", "name"] {
            let given = text(object, &format!("/metadata/{field}"));
            if !given.is_empty() {
                errors.extend(ip_text::strict_address(given, &metadata.child(field)));
            }
        }
        errors.extend(parent(object));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let none = Value::Null;
        let spec = |of: &Value| of.get("spec").cloned().unwrap_or(none.clone());
        check::immutable(&spec(object), &spec(old), "parentRef", &FieldPath::root("spec"))
            .into_iter()
            .collect()
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&tables::IP_ADDRESSES)
    }
}

/// What an address belongs to.
fn parent(object: &Value) -> Vec<FieldError> {
    let path = FieldPath::root("spec").child("parentRef");
    if present(object, "/spec/parentRef").is_none() {
        return vec![FieldError::required(&path, "")];
    }
    let mut errors = Vec::new();
    let given = map(object, "/spec/parentRef");
    let of = |field: &str| given.get(field).and_then(Value::as_str).unwrap_or_default();
    if !of("group").is_empty() {
        errors.extend(check::dns_subdomain(of("group"), &path.child("group")));
    }
    for field in ["resource", "name", "namespace"] {
        match of(field) {
            "" if field == "namespace" => {}
            "" => errors.push(FieldError::required(&path.child(field), "")),
            given => errors.extend(check::each(&path.child(field), given, names::path_segment(given))),
        }
    }
    errors
}

pub(super) struct ServiceCidr;

impl Hooks for ServiceCidr {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let path = FieldPath::root("spec").child("cidrs");
        let ranges = texts(object, "/spec/cidrs");
        if ranges.is_empty() {
            return vec![FieldError::required(&path, "at least one CIDR required")];
        }
        if ranges.len() > RANGES_MAX {
            let spec = object.get("spec").cloned().unwrap_or_default();
            return vec![FieldError::invalid(&path, spec, "may only hold up to 2 values")];
        }
        let each = |(index, range): (usize, &&str)| ip_text::strict_range(range, &path.index(index));
        let mut errors: Vec<FieldError> = ranges.iter().enumerate().flat_map(each).collect();
        let family = |range: &&str| {
            range.split('/').next().and_then(|address| address.parse().ok()).map(|ip: IpAddr| ip.is_ipv4())
        };
        if let [one, other] = ranges.as_slice()
            && errors.is_empty()
            && family(one) == family(other)
        {
            let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and \
                          2001:db8::/64";
            errors.push(FieldError::invalid(&path, list(object, "/spec/cidrs").to_vec(), detail));
        }
        errors
    }

    /// A range stays; one of the other family may come.
    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let path = FieldPath::root("spec").child("cidrs");
        let (ranges, before) = (texts(object, "/spec/cidrs"), texts(old, "/spec/cidrs"));
        if ranges.len() < before.len() {
            return vec![FieldError::invalid(&path, list(object, "/spec/cidrs").to_vec(), IMMUTABLE)];
        }
        let changed = before.iter().zip(&ranges).enumerate().filter(|(_, (before, now))| before != now);
        changed.map(|(index, (_, now))| FieldError::invalid(&path.index(index), *now, IMMUTABLE)).collect()
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&tables::SERVICE_CIDRS)
    }
}
