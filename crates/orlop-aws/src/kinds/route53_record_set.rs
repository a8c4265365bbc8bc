//! route53 RecordSet, and records as the Bridge writes them.

use std::{sync::LazyLock, time::Duration};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use crate::{
    client::{
        BatchItem, BatchLimits, Failure, ROUTE53, Result, Session, optional, parse_xml, path, xml_text,
    },
    fields::{Difference, escape, from_xml, parse, to_xml},
    kind::{Deletion, Descriptor, Kind, Object, Observed, Reference, Tags, at},
};

#[derive(Debug)]
pub(crate) struct RecordSet;

/// Version of the API, the first segment of every path.
pub(crate) const API: &str = "2013-04-01";

static DESCRIPTOR: Descriptor = Descriptor {
    service: &ROUTE53,
    kind: "RecordSet",
    plural: "recordsets",
    spec: LazyLock::new(|| {
        parse(
            "aliasTarget{hostedZoneID dnsName>DNSName evaluateTargetHealth:b~}
             cidrRoutingConfig{collectionID locationName} failover
             geoLocation{continentCode countryCode subdivisionCode} healthCheckID healthCheckRef@ hostedZoneID=^
             hostedZoneRef@ multiValueAnswer:b name=^ recordType!=>Type region
             resourceRecords[]#>ResourceRecords/ResourceRecord{value} setIdentifier=^ ttl:i>TTL weight:i",
        )
    }),
    status: LazyLock::new(|| parse("id status submittedAt:t")),
    adoption: &[
        ("hostedZoneID", "spec.hostedZoneID"),
        ("id?", "status.id"),
        ("name?", "spec.name"),
        ("recordType?", "spec.recordType"),
    ],
    identity: &["hostedZoneID", "name", "recordType", "setIdentifier"],
    references: &[
        Reference {
            field: "hostedZoneID",
            reference: "hostedZoneRef",
            target: ("route53", "HostedZone"),
            value: "status.id",
            prefix: "",
            required: true,
            list: false,
        },
        Reference {
            field: "healthCheckID",
            reference: "healthCheckRef",
            target: ("route53", "HealthCheck"),
            value: "status.id",
            prefix: "",
            required: false,
            list: false,
        },
    ],
    terminal: &["InvalidChangeBatch", "InvalidInput", "NoSuchHostedZone", "NoSuchHealthCheck"],
    late: &[],
    tags: Tags::None,
    resync: None,
    actions: &[
        "route53:GetHostedZone",
        "route53:ListResourceRecordSets",
        "route53:ChangeResourceRecordSets",
        "route53:GetChange",
    ],
    columns: &[("STATUS", "string", ".status.status")],
};

/// Fields whose absence means that the record has none.
const OPTIONAL: [&str; 10] = [
    "aliasTarget",
    "cidrRoutingConfig",
    "failover",
    "geoLocation",
    "healthCheckID",
    "multiValueAnswer",
    "region",
    "resourceRecords",
    "ttl",
    "weight",
];

/// A record of a zone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    /// Absolute, in lower case, with its trailing dot.
    pub(crate) name: String,
    pub(crate) kind: String,
    /// Fields as of a RecordSet's spec.
    pub(crate) spec: Value,
}

impl Record {
    pub(crate) fn new(name: &str, kind: &str, spec: Value) -> Self {
        Self { name: absolute(name), kind: kind.to_owned(), spec }
    }

    fn identifier(&self) -> &str {
        self.spec["setIdentifier"].as_str().unwrap_or_default()
    }
}

/// Returns a name as Route 53 has it: lower case, a trailing dot, `*` not escaped.
pub(crate) fn absolute(name: &str) -> String {
    let name = name.to_lowercase().replace("\\052", "*");
    if name.ends_with('.') { name } else { format!("{name}.") }
}

/// Returns the name of a zone, with its trailing dot.
pub(crate) async fn zone_name(aws: &Session, zone: &str) -> Result<String> {
    let address = path(&[API, "hostedzone", bare(zone)]);
    let answer = aws.xml(&ROUTE53, "GetHostedZone", "GET", &address, &[], None).await?;
    Ok(absolute(&xml_text(&answer, "Name").unwrap_or_default()))
}

/// Returns an id without its prefix, as calls take it.
pub(crate) fn bare(id: &str) -> &str {
    id.trim_start_matches("/hostedzone/").trim_start_matches("/change/")
}

/// Lists the records of a zone, or those of a name.
pub(crate) async fn list_records(aws: &Session, zone: &str, name: Option<&str>) -> Result<Vec<Record>> {
    let address = path(&[API, "hostedzone", bare(zone), "rrset"]);
    let wanted = name.map(absolute);
    let mut records = Vec::new();
    let mut from: Vec<(&str, String)> = wanted.iter().map(|name| ("name", name.clone())).collect();
    for _ in 0..100 {
        let query: Vec<_> = from.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let answer = aws.xml(&ROUTE53, "ListResourceRecordSets", "GET", &address, &query, None).await?;
        let document = parse_xml(&answer)?;
        let fields = record_fields();
        let mut past = false;
        for set in document.descendants().filter(|node| node.tag_name().name() == "ResourceRecordSet") {
            let spec = from_xml(&fields, set);
            let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
            let record =
                Record { name: absolute(&text("name")), kind: text("recordType"), spec: spec.clone() };
            match &wanted {
                Some(wanted) if record.name != *wanted => past = true,
                _ => records.push(record),
            }
        }
        let more = xml_text(&answer, "IsTruncated").as_deref() == Some("true");
        if !more || past {
            break;
        }
        let next = |element: &str| xml_text(&answer, element);
        from.clear();
        from.extend(next("NextRecordName").map(|name| ("name", name)));
        from.extend(next("NextRecordType").map(|kind| ("type", kind)));
        from.extend(next("NextRecordIdentifier").map(|identifier| ("identifier", identifier)));
    }
    Ok(records)
}

/// Fields of a record on the wire, in the order that Route 53's schema wants.
fn record_fields() -> Vec<crate::fields::Field> {
    parse(
        "name recordType>Type setIdentifier weight:i region
         geoLocation{continentCode countryCode subdivisionCode} failover multiValueAnswer:b ttl:i>TTL
         resourceRecords[]>ResourceRecords/ResourceRecord{value}
         aliasTarget{hostedZoneID dnsName>DNSName evaluateTargetHealth:b} healthCheckID
         cidrRoutingConfig{collectionID locationName}",
    )
}

/// Limits of one ChangeResourceRecordSets: records and characters. An UPSERT counts twice.
const CHANGE_LIMITS: BatchLimits = BatchLimits { weight_max: 1_000, bytes_max: 32_000 };

/// Changes records of a zone: all of them or none. Route 53 takes one call at a time for a zone, so changes that wait go
/// together. Returns the id and the state of the change.
pub(crate) async fn change_records(
    aws: &Session,
    zone: &str,
    changes: &[(&str, Record)],
) -> Result<(String, String)> {
    let mut item = BatchItem { text: String::new(), weight: 0, bytes: 0 };
    for (action, record) in changes {
        let text = change_xml(action, record);
        let factor = if *action == "UPSERT" { 2 } else { 1 };
        item.weight +=
            factor * record.spec["resourceRecords"].as_array().map_or(1, |values| values.len().max(1));
        item.bytes += factor * text.len();
        item.text.push_str(&text);
    }
    let address = path(&[API, "hostedzone", bare(zone), "rrset"]);
    let call = |items: Vec<String>| -> BoxFuture<'_, Result<String>> {
        let body = format!(
            "<ChangeResourceRecordSetsRequest xmlns=\"https://route53.amazonaws.com/doc/2013-04-01/\"><ChangeBatch>\
             <Changes>{}</Changes></ChangeBatch></ChangeResourceRecordSetsRequest>",
            items.concat()
        );
        let address = address.clone();
        Box::pin(async move {
            aws.xml(&ROUTE53, "ChangeResourceRecordSets", "POST", &address, &[], Some(body)).await
        })
    };
    let answer = aws.batched(bare(zone), CHANGE_LIMITS, item, &call).await?;
    let text = |name: &str| xml_text(&answer, name).unwrap_or_default();
    Ok((text("Id"), text("Status")))
}

fn change_xml(action: &str, record: &Record) -> String {
    let mut spec = record.spec.clone();
    spec["name"] = json!(record.name);
    spec["recordType"] = json!(record.kind);
    if let Some(alias) = spec.get_mut("aliasTarget").filter(|alias| alias.is_object())
        && alias.get("evaluateTargetHealth").is_none()
    {
        alias["evaluateTargetHealth"] = json!(false);
    }
    let mut text = format!("<Change><Action>{}</Action><ResourceRecordSet>", escape(action));
    to_xml(&record_fields(), &spec, &mut text);
    text.push_str("</ResourceRecordSet></Change>");
    text
}

/// Returns the absolute name of an object's record: relative to its zone unless it ends in a dot.
fn record_name(object: &Object, zone: &str) -> String {
    match object.spec("name") {
        None => zone.to_owned(),
        Some(name) if name.ends_with('.') => absolute(name),
        Some(name) => {
            let name = absolute(name);
            let inside = name == zone || name.ends_with(&format!(".{zone}"));
            if inside { name } else { format!("{name}{zone}") }
        }
    }
}

fn desired(object: &Object, zone: &str) -> Record {
    let mut spec = object.spec.clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|name, _| !["hostedZoneID", "hostedZoneRef", "name"].contains(&name.as_str()));
    }
    Record::new(&record_name(object, zone), object.need("recordType"), spec)
}

#[async_trait]
impl Kind for RecordSet {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        let zone = object.need("hostedZoneID");
        let Some(suffix) = optional(zone_name(aws, zone).await, &[])? else { return Ok(None) };
        let wanted = desired(object, &suffix);
        let found = list_records(aws, zone, Some(&wanted.name)).await?;
        let same = |record: &Record| record.kind == wanted.kind && record.identifier() == wanted.identifier();
        let Some(record) = found.into_iter().find(same) else { return Ok(None) };
        let mut spec = record.spec;
        // Alias names come back without the dot that users may write.
        if let Some(name) = spec["aliasTarget"]["dnsName"].as_str() {
            spec["aliasTarget"]["dnsName"] = json!(name.trim_end_matches('.').to_lowercase());
        }
        let mut status = json!({"id": object.status("id"), "status": object.status("status"),
            "submittedAt": object.status("submittedAt")});
        let mut pending = None;
        match object.status("status") {
            Some("PENDING") => {
                let id = object.status("id").map(bare).unwrap_or_default();
                let read =
                    aws.xml(&ROUTE53, "GetChange", "GET", &path(&[API, "change", id]), &[], None).await;
                let state = optional(read, &["NoSuchChange"])?.and_then(|answer| xml_text(&answer, "Status"));
                let state = state.unwrap_or_else(|| "INSYNC".to_owned());
                if state == "PENDING" {
                    pending = Some(("the change is PENDING".to_owned(), Duration::from_secs(5)));
                }
                status["status"] = json!(state);
            }
            None => status["status"] = json!("INSYNC"),
            Some(_) => {}
        }
        if let Some(fields) = status.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        Ok(Some(Observed { spec, status, pending, ..Observed::default() }))
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        let zone = object.need("hostedZoneID");
        let record = desired(object, &zone_name(aws, zone).await?);
        // UPSERT: a record left over from an earlier object of this name is no obstacle. A foreign one has been seen by
        // `read`, which makes the reconciler refuse.
        let (id, state) = change_records(aws, zone, &[("UPSERT", record)]).await?;
        Ok(json!({"id": id, "status": state}))
    }

    fn refine(&self, object: &Object, observed: &Observed, changed: &mut Vec<Difference>) {
        let name = |value: &Value| {
            let name = value["aliasTarget"]["dnsName"].as_str().unwrap_or_default();
            name.trim_end_matches('.').to_lowercase()
        };
        if name(&object.spec) == name(&observed.spec) {
            changed.retain(|difference| difference.path != "aliasTarget.dnsName");
        }
        // A record is written whole: what left the spec leaves the record.
        for field in OPTIONAL {
            if object.spec.get(field).is_none() && at(&observed.spec, field).is_some() {
                changed.push(Difference { field: field.to_owned(), path: field.to_owned() });
            }
        }
    }

    async fn update(&self, aws: &Session, object: &Object, _: &Observed, _: &[Difference]) -> Result<()> {
        let zone = object.need("hostedZoneID");
        let record = desired(object, &zone_name(aws, zone).await?);
        let (_, state) = change_records(aws, zone, &[("UPSERT", record)]).await?;
        match state.as_str() {
            "PENDING" => Err(Failure::wait(2, "the change is PENDING")),
            _ => Ok(()),
        }
    }

    async fn delete(&self, aws: &Session, object: &Object, _: &Observed) -> Result<Deletion> {
        let zone = object.need("hostedZoneID");
        let wanted = desired(object, &zone_name(aws, zone).await?);
        // The values must be those that are there.
        let found = list_records(aws, zone, Some(&wanted.name)).await?;
        let same = |record: &Record| record.kind == wanted.kind && record.identifier() == wanted.identifier();
        if let Some(record) = found.into_iter().find(same) {
            let deleted = change_records(aws, zone, &[("DELETE", record)]).await;
            optional(deleted, &[])?;
        }
        Ok(Deletion::Gone)
    }
}
