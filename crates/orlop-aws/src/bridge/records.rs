//! Records of public zones: which zone, whose record, UPSERT and DELETE.

use serde_json::{Value, json};

use super::{
    step::{Cleaned, Step},
    work::Work,
};
use crate::{
    client::{ROUTE53, Result, Session, optional, parse_xml, path, xml_text},
    fields::child,
    kinds::route53::{API, Record, absolute, bare, change_records, list_records, zone_name},
};

/// A public zone.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    pub(super) id: String,
    /// With its trailing dot.
    pub(super) name: String,
}

/// Finds the public zone with the longest suffix of a name.
pub(super) async fn zone_of(aws: &Session, name: &str) -> Result<Option<Zone>> {
    let name = absolute(name);
    let labels: Vec<&str> = name.trim_end_matches('.').split('.').collect();
    let address = path(&[API, "hostedzonesbyname"]);
    for from in 0..labels.len() {
        // Neither a wildcard nor the name of a validation record begins a zone.
        if labels[from] == "*" || labels[from].starts_with('_') {
            continue;
        }
        let suffix = format!("{}.", labels[from..].join("."));
        let query = [("dnsname", suffix.as_str()), ("maxitems", "20")];
        let answer = aws.xml(&ROUTE53, "ListHostedZonesByName", "GET", &address, &query, None).await?;
        let document = parse_xml(&answer)?;
        let zones = document.descendants().filter(|node| node.tag_name().name() == "HostedZone");
        for zone in zones {
            let text = |name: &str| child(zone, name).and_then(|node| node.text()).unwrap_or_default();
            let private = zone
                .descendants()
                .any(|node| node.tag_name().name() == "PrivateZone" && node.text() == Some("true"));
            if !private && absolute(text("Name")) == suffix {
                return Ok(Some(Zone { id: bare(text("Id")).to_owned(), name: suffix }));
            }
        }
    }
    Ok(None)
}

/// Returns a zone by its id; `None` if it does not exist.
pub(super) async fn zone_by_id(aws: &Session, id: &str) -> Result<Option<Zone>> {
    let name = optional(zone_name(aws, id).await, &[])?;
    Ok(name.map(|name| Zone { id: bare(id).to_owned(), name }))
}

/// Outcome of [`ensure`].
#[derive(Debug)]
pub(super) enum Ensured {
    Same,
    /// Id and state of the change.
    Changed(String, String),
    /// A record that is not ours is in the way.
    Conflict(String),
}

/// Makes records of one name be there. Records in the way are replaced only if they are `ours`.
pub(super) async fn ensure(
    aws: &Session,
    zone: &str,
    desired: &[Record],
    ours: impl Fn(&Record) -> bool,
) -> Result<Ensured> {
    let Some(first) = desired.first() else { return Ok(Ensured::Same) };
    let found = list_records(aws, zone, Some(&first.name)).await?;
    let missing: Vec<&Record> =
        desired.iter().filter(|desired| !found.iter().any(|found| same(desired, found))).collect();
    let in_the_way: Vec<&Record> = found
        .iter()
        .filter(|found| !desired.iter().any(|desired| same(desired, found)) && clashes(desired, found))
        .collect();
    if missing.is_empty() && in_the_way.is_empty() {
        return Ok(Ensured::Same);
    }
    if let Some(foreign) = in_the_way.iter().find(|record| !ours(record)) {
        let text = format!("{} {} {} exists", foreign.name, foreign.kind, value_of(foreign));
        return Ok(Ensured::Conflict(text));
    }
    let replaced = |record: &Record| desired.iter().any(|desired| same_set(desired, record));
    let deleted = in_the_way.into_iter().filter(|record| !replaced(record));
    let mut changes: Vec<(&str, Record)> = deleted.map(|record| ("DELETE", record.clone())).collect();
    changes.extend(missing.into_iter().map(|record| ("UPSERT", record.clone())));
    let (id, state) = change_records(aws, zone, &changes).await?;
    Ok(Ensured::Changed(id, state))
}

/// Deletes the records of a name that are `ours`. A zone that is gone has none.
pub(super) async fn remove(
    aws: &Session,
    zone: &str,
    name: &str,
    ours: impl Fn(&Record) -> bool,
) -> Result<()> {
    let Some(found) = optional(list_records(aws, zone, Some(name)).await, &[])? else { return Ok(()) };
    let changes: Vec<_> =
        found.into_iter().filter(|record| ours(record)).map(|record| ("DELETE", record)).collect();
    if !changes.is_empty() {
        optional(change_records(aws, zone, &changes).await, &[])?;
    }
    Ok(())
}

/// Returns the state of a change: `PENDING` or `INSYNC`. AWS forgets old ones.
pub(super) async fn change_state(aws: &Session, id: &str) -> Result<String> {
    let read = aws.xml(&ROUTE53, "GetChange", "GET", &path(&[API, "change", bare(id)]), &[], None).await;
    let state = optional(read, &["NoSuchChange"])?.and_then(|answer| xml_text(&answer, "Status"));
    Ok(state.unwrap_or_else(|| "INSYNC".to_owned()))
}

pub(super) fn cname(name: &str, value: &str, ttl: i64) -> Record {
    Record::new(name, "CNAME", json!({"ttl": ttl, "resourceRecords": [{"value": value}]}))
}

/// Alias records of both families, for the apex of a zone, where no CNAME may be.
pub(super) fn aliases(name: &str, target: &str, target_zone: &str) -> Vec<Record> {
    let spec = json!({"aliasTarget": {"dnsName": target, "hostedZoneID": target_zone, "evaluateTargetHealth": false}});
    ["A", "AAAA"].map(|kind| Record::new(name, kind, spec.clone())).into()
}

/// Returns the target of a record: of its alias, or its first value.
pub(super) fn value_of(record: &Record) -> String {
    let alias = record.spec["aliasTarget"]["dnsName"].as_str();
    let value = alias.or_else(|| record.spec["resourceRecords"][0]["value"].as_str()).unwrap_or_default();
    value.trim_end_matches('.').to_lowercase()
}

fn set_identifier(record: &Record) -> &str {
    record.spec["setIdentifier"].as_str().unwrap_or_default()
}

/// True if two records are one set: an UPSERT of one replaces the other.
fn same_set(one: &Record, other: &Record) -> bool {
    one.kind == other.kind && set_identifier(one) == set_identifier(other)
}

fn same(one: &Record, other: &Record) -> bool {
    let values = |record: &Record| -> Vec<String> {
        let list = record.spec["resourceRecords"].as_array().into_iter().flatten();
        let text =
            |item: &Value| item["value"].as_str().unwrap_or_default().trim_end_matches('.').to_lowercase();
        let mut values: Vec<String> = list.map(text).collect();
        values.sort();
        values
    };
    let alias_zone = |record: &Record| record.spec["aliasTarget"]["hostedZoneID"].clone();
    same_set(one, other)
        && one.name == other.name
        && one.spec["ttl"] == other.spec["ttl"]
        && values(one) == values(other)
        && value_of(one) == value_of(other)
        && alias_zone(one) == alias_zone(other)
}

/// True if a record cannot stand beside the wanted ones: a CNAME stands alone.
fn clashes(desired: &[Record], found: &Record) -> bool {
    desired
        .iter()
        .any(|desired| desired.kind == "CNAME" || found.kind == "CNAME" || desired.kind == found.kind)
}

/// A name that should lead somewhere. `spec.dnsConfig` and `status.dnsRecord` of its object are this module's.
pub(super) struct Site {
    pub(super) name: String,
    pub(super) target: String,
    /// Zone of the target, for an alias at the apex.
    pub(super) alias_zone: Option<String>,
    /// True for targets that only an earlier object of this name can have written.
    pub(super) is_stale: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

/// Requeue delay while a change is PENDING.
const CHANGE_SECONDS: u64 = 15;

/// Makes a name lead to its target: a CNAME, or aliases at the apex of a zone.
pub(super) async fn run_site(work: &mut Work<'_>, site: Site) -> Result<Step> {
    let given = work.spec("dnsConfig.hostedZoneID").map(str::to_owned);
    let noted = work.status("dnsRecord.hostedZoneID").map(str::to_owned);
    let is_alias = work.status("dnsRecord.type").map(|kind| kind != "CNAME");
    // A zone that was found once is not listed again, unless it is gone.
    let zone = match (&given, noted, is_alias) {
        (Some(given), Some(noted), Some(is_alias)) if bare(given) == noted => Some((noted, is_alias)),
        (None, Some(noted), Some(is_alias)) => Some((noted, is_alias)),
        _ => None,
    };
    let (zone, is_alias) = match zone {
        Some(known) => known,
        None => {
            let found = match &given {
                Some(id) => zone_by_id(work.aws, id).await?,
                None => zone_of(work.aws, &site.name).await?,
            };
            let Some(found) = found else {
                let text = match given {
                    Some(id) => format!("hosted zone not found: {id}"),
                    None => format!("hosted zone not found: no public zone holds {}", site.name),
                };
                return Ok(Step::refused("HostedZoneNotFound", text));
            };
            let is_alias = found.name == absolute(&site.name);
            (found.id, is_alias)
        }
    };
    let ttl = work.spec_value("dnsConfig.ttl").and_then(Value::as_i64).unwrap_or(300);
    let desired = match (is_alias, &site.alias_zone) {
        (false, _) => vec![cname(&site.name, &site.target, ttl)],
        (true, Some(target_zone)) => aliases(&site.name, &site.target, target_zone),
        (true, None) => {
            let text =
                format!("configuration error: {} is the apex of its zone, where no CNAME may be", site.name);
            return Ok(Step::refused("Error", text));
        }
    };
    let overwrite = work.spec_value("dnsConfig.overwrite").and_then(Value::as_bool).unwrap_or_default();
    let previous = work.status("dnsRecord.value").map(str::to_owned);
    let ours = |record: &Record| {
        let value = value_of(record);
        overwrite || previous.as_ref() == Some(&value) || (site.is_stale)(&value)
    };
    let ensured = match ensure(work.aws, &zone, &desired, ours).await {
        Err(failure) if failure.is(&["NoSuchHostedZone"]) => {
            work.status["dnsRecord"] = Value::Null;
            return Ok(Step::refused("HostedZoneNotFound", format!("hosted zone not found: {zone}")));
        }
        Err(failure) if failure.is(&["InvalidChangeBatch"]) => {
            return Ok(Step::refused("RecordConflict", format!("AWS API error: {failure}")));
        }
        other => other?,
    };
    let kind = if is_alias { "ALIAS" } else { "CNAME" };
    let mut record = json!({"type": kind, "value": site.target.to_lowercase(), "hostedZoneID": zone});
    if !is_alias {
        record["ttl"] = json!(ttl);
    }
    let state = match ensured {
        Ensured::Conflict(text) => return Ok(Step::refused("RecordConflict", text)),
        Ensured::Changed(id, state) => {
            record["changeID"] = json!(bare(&id));
            state
        }
        Ensured::Same => match work.status("dnsRecord.changeID").map(str::to_owned) {
            Some(id) if work.status("dnsRecord.status") == Some("PENDING") => {
                record["changeID"] = json!(id);
                change_state(work.aws, &id).await?
            }
            id => {
                if let Some(id) = id {
                    record["changeID"] = json!(id);
                }
                "INSYNC".to_owned()
            }
        },
    };
    record["status"] = json!(state);
    work.status["dnsRecord"] = record;
    work.status["dnsRecordName"] = json!(absolute(&site.name));
    Ok(match state.as_str() {
        "INSYNC" => Step::done("Ready", format!("DNS {kind} record created")),
        _ => {
            Step::wait(CHANGE_SECONDS, "InProgress", format!("the change of record {} is PENDING", site.name))
        }
    })
}

/// Deletes the record of a name, if it leads to one of the targets.
pub(super) async fn clean_site(work: &mut Work<'_>, name: &str, targets: Vec<String>) -> Result<Cleaned> {
    if targets.is_empty() {
        return Ok(Cleaned::Gone);
    }
    let noted =
        work.status("dnsRecord.hostedZoneID").or(work.spec("dnsConfig.hostedZoneID")).map(str::to_owned);
    let zone = match noted {
        Some(zone) => Some(zone),
        None => zone_of(work.aws, name).await?.map(|zone| zone.id),
    };
    let Some(zone) = zone else { return Ok(Cleaned::Gone) };
    // Written down for later tries: what the record leads to may be gone by then.
    if work.status("dnsRecord.value").is_none() {
        work.status["dnsRecord"] = json!({"value": targets[0].to_lowercase(), "hostedZoneID": zone});
    }
    let ours = |record: &Record| {
        ["CNAME", "A", "AAAA"].contains(&record.kind.as_str())
            && targets.iter().any(|target| target.eq_ignore_ascii_case(&value_of(record)))
    };
    remove(work.aws, &zone, name, ours).await?;
    Ok(Cleaned::Gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_compare_by_meaning() {
        let one = cname("api.example.com", "D-1.example.net.", 300);
        assert!(same(&one, &cname("API.example.com.", "d-1.example.net", 300)));
        assert!(!same(&one, &cname("api.example.com", "d-1.example.net", 60)));
        assert!(!same(&one, &cname("api.example.com", "d-2.example.net", 300)));
    }

    #[test]
    fn cname_stands_alone_and_an_alias_beside_other_types() {
        let cname = [cname("a.example.com", "b", 60)];
        let mail = Record::new("a.example.com", "MX", json!({}));
        assert!(clashes(&cname, &mail));
        assert!(!clashes(&aliases("a.example.com", "b", "Z"), &mail));
    }
}
