//! ServiceCIDR: a range that ClusterIPs are allocated from.

use std::net::IpAddr;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    object_meta::IMMUTABLE,
};
use serde_json::Value;

use crate::{
    BuiltinKind,
    accessors::{list, texts},
    printer::{ColumnDefinition, PrinterColumns, age, name},
    strategy::Strategy,
    update_scope::STATUS_WITHOUT_METADATA,
    validation::ip,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    update_scopes: STATUS_WITHOUT_METADATA,
    columns: &COLUMNS,
    strategy: &ServiceCidr,
    ..BuiltinKind::new("networking.k8s.io", "servicecidrs")
};

pub(crate) static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[ColumnDefinition::NAME, ColumnDefinition::text("CIDRs"), ColumnDefinition::AGE],
    cells: |object, now| vec![name(object), texts(object, "/spec/cidrs").join(",").into(), age(object, now)],
};

/// Ranges of a ServiceCIDR: one per IP family.
const RANGES_MAX: usize = 2;

pub(crate) struct ServiceCidr;

impl Strategy for ServiceCidr {
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
        let each = |(index, range): (usize, &&str)| ip::validate_canonical_cidr(range, &path.index(index));
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

    /// Ranges are immutable; one of the other family may be added.
    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let path = FieldPath::root("spec").child("cidrs");
        let (ranges, before) = (texts(object, "/spec/cidrs"), texts(old, "/spec/cidrs"));
        if ranges.len() < before.len() {
            return vec![FieldError::invalid(&path, list(object, "/spec/cidrs").to_vec(), IMMUTABLE)];
        }
        let changed = before.iter().zip(&ranges).enumerate().filter(|(_, (before, now))| before != now);
        changed.map(|(index, (_, now))| FieldError::invalid(&path.index(index), *now, IMMUTABLE)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::printer::tests::row;

    #[test]
    fn row_joins_the_ranges() {
        assert_eq!(row(&COLUMNS, &json!({"spec": {"cidrs": ["a", "b"]}}))[1], "a,b");
    }
}
