//! Service. The server allocates ClusterIPs and node ports.

pub(super) mod families;
mod update;
mod validation;
mod warnings;

use orlop_api::{field_error::FieldError, names::NameRule};
use serde_json::{Value, json};

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{integer, list, map, text, text_or, texts},
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, format_labels, load_balancer_addresses, name},
    strategy::{RequestContext, Strategy},
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    name_rule: NameRule::Label,
    flags: StrategyFlags {
        allow_create_on_update: true,
        returns_deleted_object: true,
        ..StrategyFlags::BUILTIN
    },
    selectable_fields: &["spec.clusterIP", "spec.type"],
    columns: &COLUMNS,
    strategy: &Service,
    ..BuiltinKind::new("", "services")
};

const DEFAULT_AFFINITY_SECONDS: i64 = 10_800;

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Type"),
        ColumnDefinition::text("Cluster-IP"),
        ColumnDefinition::text("External-IP"),
        ColumnDefinition::text("Port(s)"),
        ColumnDefinition::AGE,
        ColumnDefinition::wide("Selector"),
    ],
    cells: |object, now| {
        vec![
            name(object),
            text(object, "/spec/type").into(),
            text_or(object, "/spec/clusterIPs/0", "<none>").into(),
            external_ip(object).into(),
            ports(object).into(),
            age(object, now),
            format_labels(map(object, "/spec/selector")),
        ]
    },
};

fn external_ip(service: &Value) -> String {
    let mut addresses: Vec<String> = Vec::new();
    let none = match text(service, "/spec/type") {
        "ClusterIP" | "NodePort" => "<none>",
        "LoadBalancer" => {
            addresses.push(load_balancer_addresses(service));
            "<pending>"
        }
        "ExternalName" => return text(service, "/spec/externalName").to_owned(),
        _ => return "<unknown>".to_owned(),
    };
    addresses.extend(texts(service, "/spec/externalIPs").into_iter().map(str::to_owned));
    addresses.retain(|address| !address.is_empty());
    if addresses.is_empty() { none.to_owned() } else { addresses.join(",") }
}

fn ports(service: &Value) -> String {
    let shown = list(service, "/spec/ports").iter().map(|port| {
        let (number, node_port) = (integer(port, "/port"), integer(port, "/nodePort"));
        let protocol = text(port, "/protocol");
        if node_port > 0 {
            format!("{number}:{node_port}/{protocol}")
        } else {
            format!("{number}/{protocol}")
        }
    });
    let shown = shown.collect::<Vec<_>>().join(",");
    if shown.is_empty() { "<none>".to_owned() } else { shown }
}

/// Returns true if a service may be reached from outside the cluster.
fn is_external(service: &Value) -> bool {
    match text(service, "/spec/type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !list(service, "/spec/externalIPs").is_empty(),
        _ => false,
    }
}

fn is_headless(service: &Value) -> bool {
    texts(service, "/spec/clusterIPs") == ["None"]
}

fn needs_health_check_node_port(service: &Value) -> bool {
    text(service, "/spec/type") == "LoadBalancer" && text(service, "/spec/externalTrafficPolicy") == "Local"
}

pub(crate) struct Service;

impl Strategy for Service {
    fn set_defaults(&self, object: &mut Value) {
        defaulting::set_if_absent(object, "spec", json!({}));
        let external = |object: &Value| is_external(object);
        if let Some(spec) = defaulting::object_mut(object, "spec") {
            // An empty clusterIP means that the server allocates one, and no manager owns it.
            for field in ["clusterIP", "externalName", "loadBalancerIP"] {
                if text(spec, &format!("/{field}")).is_empty() {
                    defaulting::remove_field(spec, field);
                }
            }
            default_session_affinity(spec);
            defaulting::set_if_zero(spec, "type", "ClusterIP");
            for port in defaulting::items_mut(spec, "ports") {
                defaulting::set_if_zero(port, "protocol", "TCP");
                let number = integer(port, "/port");
                defaulting::set_if_zero(port, "targetPort", number);
            }
        }
        let is_external = external(object);
        let Some(spec) = defaulting::object_mut(object, "spec") else { return };
        if is_external {
            defaulting::set_if_zero(spec, "externalTrafficPolicy", "Cluster");
        }
        let kind = text(spec, "/type").to_owned();
        if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
            defaulting::set_if_absent(spec, "internalTrafficPolicy", "Cluster");
        } else {
            defaulting::remove_field(spec, "internalTrafficPolicy");
        }
        if kind == "LoadBalancer" {
            defaulting::set_if_absent(spec, "allocateLoadBalancerNodePorts", true);
            for point in defaulting::object_at_mut(object, "/status/loadBalancer")
                .into_iter()
                .flat_map(|status| defaulting::items_mut(status, "ingress"))
            {
                if !text(point, "/ip").is_empty() {
                    defaulting::set_if_absent(point, "ipMode", "VIP");
                }
            }
        }
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        warnings::service_warnings(object)
    }

    fn prepare_for_create(&self, object: &mut Value, _context: &RequestContext<'_>) {
        object["status"] = json!({"loadBalancer": {}});
        sync_cluster_ips(object, None);
        drop_fields_of_other_types(object, None);
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value, _context: &RequestContext<'_>) {
        sync_cluster_ips(object, Some(old));
        update::restore_allocations(object, old);
        drop_fields_of_other_types(object, Some(old));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validation::validate_service(object)
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        update::validate_update(object, old)
    }
}

fn default_session_affinity(spec: &mut Value) {
    defaulting::set_if_zero(spec, "sessionAffinity", "None");
    match text(spec, "/sessionAffinity") {
        "None" => defaulting::remove_field(spec, "sessionAffinityConfig"),
        "ClientIP"
            if spec.pointer("/sessionAffinityConfig/clientIP/timeoutSeconds").is_none_or(Value::is_null) =>
        {
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": DEFAULT_AFFINITY_SECONDS}});
        }
        _ => {}
    }
}

/// Makes `clusterIP` and the first of `clusterIPs` equal; the one that was written wins.
fn sync_cluster_ips(object: &mut Value, old: Option<&Value>) {
    let one = text(object, "/spec/clusterIP").to_owned();
    let many: Vec<String> = texts(object, "/spec/clusterIPs").into_iter().map(str::to_owned).collect();
    let Some(spec) = defaulting::object_mut(object, "spec") else { return };
    match old {
        None if many.is_empty() && !one.is_empty() => spec["clusterIPs"] = json!([one]),
        None => {}
        Some(old) => {
            let (old_one, old_many) = (text(old, "/spec/clusterIP"), texts(old, "/spec/clusterIPs"));
            let same_many = many == old_many;
            if one == old_one && !one.is_empty() && many.is_empty() {
                // Written by a client that does not know `clusterIPs`.
                spec["clusterIPs"] = json!(old_many);
            } else if one != old_one && same_many {
                if one.is_empty() {
                    defaulting::remove_field(spec, "clusterIPs");
                } else {
                    spec["clusterIPs"] = json!([one]);
                }
            }
        }
    }
}

/// Drops fields that a change of type has made meaningless.
fn drop_fields_of_other_types(object: &mut Value, old: Option<&Value>) {
    let Some(old) = old else { return };
    let (external, health) = (is_external(object), needs_health_check_node_port(object));
    let (kind, old_kind) = (text(object, "/spec/type").to_owned(), text(old, "/spec/type").to_owned());
    let unchanged = |object: &Value, field: &str| object["spec"].get(field) == old["spec"].get(field);
    let drops = [
        ("externalTrafficPolicy", is_external(old) && !external),
        ("healthCheckNodePort", needs_health_check_node_port(old) && !health),
        ("allocateLoadBalancerNodePorts", old_kind == "LoadBalancer" && kind != "LoadBalancer"),
        ("loadBalancerClass", old_kind == "LoadBalancer" && kind != "LoadBalancer"),
    ];
    for (field, _) in drops.iter().filter(|(_, drops)| *drops) {
        if unchanged(object, field)
            && let Some(spec) = defaulting::object_mut(object, "spec")
        {
            defaulting::remove_field(spec, field);
        }
    }
    if kind == "ExternalName" && old_kind != kind {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if unchanged(object, field)
                && let Some(spec) = defaulting::object_mut(object, "spec")
            {
                defaulting::remove_field(spec, field);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printer::tests::row;
    use crate::strategy::tests::context;

    #[test]
    fn service_defaults_are_set() {
        let mut service = json!({"spec": {"ports": [{"port": 80, "protocol": "TCP"}]}});
        Service.set_defaults(&mut service);
        assert_eq!(
            service,
            json!({"spec": {"ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}], "sessionAffinity": "None",
                "type": "ClusterIP", "internalTrafficPolicy": "Cluster"}})
        );
        let mut balanced = json!({"spec": {"type": "LoadBalancer", "sessionAffinity": "ClientIP"}});
        Service.set_defaults(&mut balanced);
        assert_eq!(
            balanced["spec"],
            json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
                "externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Cluster", "allocateLoadBalancerNodePorts": true})
        );
    }

    #[test]
    fn cluster_ip_and_cluster_ips_are_synchronized() {
        let mut service = json!({"spec": {"clusterIP": "None"}});
        Service.prepare_for_create(&mut service, &context());
        assert_eq!(service["spec"]["clusterIPs"], json!(["None"]));
        assert_eq!(service["status"], json!({"loadBalancer": {}}));
        let old = json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}});
        let mut new = json!({"spec": {"type": "ClusterIP"}});
        Service.prepare_for_update(&mut new, &old, &context());
        assert_eq!(new["spec"], old["spec"]);
    }

    #[test]
    fn row_shows_addresses_and_ports() {
        let service = json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "clusterIPs": ["10.0.0.1"], "selector": {"a": "b"},
            "ports": [{"port": 80, "nodePort": 30000, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}});
        assert_eq!(
            row(&COLUMNS, &service),
            ["s", "NodePort", "10.0.0.1", "<none>", "80:30000/TCP,53/UDP", "<unknown>", "a=b"]
        );
        let balanced = |ingress: Value, external: Value| {
            external_ip(
                &json!({"spec": {"type": "LoadBalancer", "externalIPs": external}, "status": {"loadBalancer": {"ingress": ingress}}}),
            )
        };
        assert_eq!(balanced(json!([]), json!([])), "<pending>");
        assert_eq!(
            balanced(json!([{"ip": "1.1.1.1"}, {"hostname": "h"}]), json!(["2.2.2.2"])),
            "1.1.1.1,h,2.2.2.2"
        );
        assert_eq!(external_ip(&json!({"spec": {"type": "ExternalName", "externalName": "x.y"}})), "x.y");
        assert_eq!(ports(&json!({})), "<none>");
    }
}
