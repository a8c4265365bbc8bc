//! NetworkPolicy: allowed traffic of pods.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels,
};
use serde_json::{Value, json};

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{list, present, text, texts},
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, format_selector, name},
    strategy::Strategy,
    validation::{self, cidr::IpRange},
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { tracks_generation: true, ..StrategyFlags::BUILTIN },
    columns: &COLUMNS,
    strategy: &NetworkPolicy,
    ..BuiltinKind::new("networking.k8s.io", "networkpolicies")
};

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[ColumnDefinition::NAME, ColumnDefinition::text("Pod-Selector"), ColumnDefinition::AGE],
    cells: |object, now| {
        vec![name(object), format_selector(object.pointer("/spec/podSelector")), age(object, now)]
    },
};

pub(crate) struct NetworkPolicy;

impl Strategy for NetworkPolicy {
    fn set_defaults(&self, object: &mut Value) {
        let Some(spec) = defaulting::object_mut(object, "spec") else { return };
        if list(spec, "/policyTypes").is_empty() {
            let both = !list(spec, "/egress").is_empty();
            spec["policyTypes"] = if both { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        }
        for direction in ["ingress", "egress"] {
            for rule in defaulting::items_mut(spec, direction) {
                defaulting::items_mut(rule, "ports")
                    .for_each(|port| defaulting::set_if_absent(port, "protocol", "TCP"));
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let mut errors = Vec::new();
        if let Some(pods) = present(spec, "/podSelector") {
            errors.extend(labels::validate_label_selector(pods, &path.child("podSelector")));
        }
        for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
            errors.extend(validation::validate_items(spec, direction, &path, |rule, path| {
                let mut errors = validation::validate_items(rule, "ports", path, validate_port);
                errors.extend(validation::validate_items(rule, peers, path, validate_peer));
                errors
            }));
        }
        let types = texts(spec, "/policyTypes");
        let at = path.child("policyTypes");
        if types.len() > 2 {
            errors.push(FieldError::invalid(&at, json!(types), "may not specify more than two policyTypes"));
            return errors;
        }
        for (index, kind) in types.into_iter().enumerate() {
            if !matches!(kind, "Ingress" | "Egress") {
                errors.push(FieldError::not_supported(&at.index(index), kind, &["Ingress", "Egress"]));
            }
        }
        errors
    }
}

fn validate_port(port: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> =
        validation::validate_supported(port, "protocol", path, &["TCP", "UDP", "SCTP"]).into_iter().collect();
    let end = present(port, "/endPort").and_then(Value::as_i64);
    let end_path = path.child("endPort");
    let refused = match present(port, "/port") {
        None => Some("may not be specified when `port` is not specified"),
        Some(Value::String(_)) => Some("may not be specified when `port` is non-numeric"),
        Some(_) => None,
    };
    if let (Some(end), Some(why)) = (end, refused) {
        errors.push(FieldError::invalid(&end_path, end, why));
    }
    let Some(first) = present(port, "/port") else { return errors };
    errors.extend(validation::validate_port_number_or_name(Some(first), &path.child("port")));
    if let (Some(end), Some(first)) = (end, first.as_i64()) {
        if end < first {
            errors.push(FieldError::invalid(&end_path, end, "must be greater than or equal to `port`"));
        }
        errors.extend(validation::invalid_for_each(&end_path, end, validation::port_number_problems(end)));
    }
    errors
}

fn validate_peer(peer: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut count = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = present(peer, &format!("/{field}")) {
            count += 1;
            errors.extend(labels::validate_label_selector(selector, &path.child(field)));
        }
    }
    let block = present(peer, "/ipBlock");
    if let Some(block) = block {
        let path = path.child("ipBlock");
        match text(block, "/cidr") {
            "" => errors.push(FieldError::required(&path.child("cidr"), "")),
            range => {
                errors.extend(validation::validate_cidr(range, &path.child("cidr")));
                let whole = IpRange::parse(range);
                for (index, except) in texts(block, "/except").into_iter().enumerate() {
                    let at = path.child("except").index(index);
                    if let (Some(whole), Some(part)) = (whole, IpRange::parse(except))
                        && !whole.has_part(part)
                    {
                        let detail = "must be a strict subset of `cidr`";
                        errors.push(FieldError::invalid(&at, except, detail));
                    }
                    errors.extend(validation::validate_cidr(except, &at));
                }
            }
        }
    }
    match (count, block) {
        (0, None) => errors.push(FieldError::required(path, "must specify a peer")),
        (1.., Some(_)) => {
            errors.push(FieldError::forbidden(path, "may not specify both ipBlock and another peer"));
        }
        _ => {}
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn policy_types_ports_and_peers_are_validated() {
        let mut policy = json!({"metadata": {"name": "p"}, "spec": {"podSelector": {}, "egress": [{"ports": [{"port": 80}]}]}});
        NetworkPolicy.set_defaults(&mut policy);
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!(policy["spec"]["egress"][0]["ports"][0]["protocol"], "TCP");
        assert!(messages(NetworkPolicy.validate(&policy)).is_empty());
        assert_eq!(row(&COLUMNS, &policy), ["p", "<none>", "<unknown>"]);
        let bad = json!({"spec": {"policyTypes": ["x"], "ingress": [{"ports": [{"protocol": "X", "port": 90, "endPort": 80}, {"endPort": 1}],
            "from": [{}, {"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}, {"ipBlock": {"cidr": "x"}}]}]}});
        assert_eq!(
            messages(NetworkPolicy.validate(&bad)),
            [
                r#"spec.ingress[0].ports[0].protocol: Unsupported value: "X": supported values: "TCP", "UDP", "SCTP""#,
                "spec.ingress[0].ports[0].endPort: Invalid value: 80: must be greater than or equal to `port`",
                "spec.ingress[0].ports[1].endPort: Invalid value: 1: may not be specified when `port` is not specified",
                "spec.ingress[0].from[0]: Required value: must specify a peer",
                "spec.ingress[0].from[1]: Forbidden: may not specify both ipBlock and another peer",
                r#"spec.ingress[0].from[2].ipBlock.cidr: Invalid value: "x": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"#,
                r#"spec.policyTypes[0]: Unsupported value: "x": supported values: "Ingress", "Egress""#,
            ]
        );
    }
}
