//! Choice of a plan: candidates from every index, compared by a bounded count of their entries.

use super::{
    Access, IntersectionInput, Plan,
    bounds::{self, Bounds},
    ranges::{self, IndexRanges},
};
use crate::{
    catalog::{Collection, Index, IndexField},
    error::Result,
    filter::Filter,
    path::Path,
    sort::Sort,
    store::{Direction, Range, Reader, Space},
};

/// Entries counted per candidate, in rounds: the first candidate to be exhausted wins.
const COUNT_ROUNDS: [usize; 3] = [16, 128, 1024];

/// Most indexes of an intersection.
const INPUTS_MAX: usize = 4;

/// Candidate plan.
struct Candidate {
    plan: Plan,
    space: Space,
    /// Leading fields with bounds, for ties.
    bounded: usize,
    /// The prefix of all entries, if they differ in `_id` only.
    prefix: Option<Vec<u8>>,
    /// Conjuncts that the bounds stand for exactly.
    used: usize,
    /// The bounds stand for those conjuncts and no entry repeats a document.
    exact: bool,
}

/// Chooses a plan. `limit` is the number of documents that will be read, if known.
pub(crate) fn choose(
    reader: &dyn Reader,
    collection: &Collection,
    filter: &Filter,
    sort: &Sort,
    limit: Option<usize>,
) -> Result<Plan> {
    let conjuncts = conjuncts(filter);
    let by_id = by_id(&conjuncts, sort);
    if let Some((plan, true)) = by_id {
        return Ok(plan);
    }
    let mut candidates = Vec::new();
    let mut sorting = None;
    for (position, index) in collection.indexes.iter().enumerate().filter(|(_, index)| index.is_ready()) {
        let Some(candidate) = by_index(position, index, &conjuncts, sort) else { continue };
        if candidate.bounded > 0 {
            candidates.push(candidate);
        } else if candidate.plan.sorted && sorting.is_none() {
            sorting = Some(candidate);
        }
    }
    match least_entries(reader, candidates, limit, sort)? {
        Choice::None => {}
        Choice::One(best) => return Ok(best.plan),
        Choice::AllLarge(candidates, best) => {
            return Ok(match intersection(collection, &candidates, &conjuncts, sort) {
                Some(plan) if !(limit.is_some() && candidates[best].plan.sorted && !plan.sorted) => plan,
                _ => candidates[best].plan.clone(),
            });
        }
    }
    if let Some((plan, _)) = by_id {
        return Ok(plan);
    }
    if let Some(union) = by_union(reader, collection, &conjuncts)? {
        return Ok(Plan { access: union, sorted: sort.is_empty(), exact: false, residual: None });
    }
    // An index in the right order saves sorting, but reads documents out of their own order.
    match sorting {
        Some(sorting) if limit.is_some() => Ok(sorting.plan),
        _ => Ok(scan(filter, sort)),
    }
}

fn scan(filter: &Filter, sort: &Sort) -> Plan {
    let by_id = sort.id_direction();
    let direction = by_id.unwrap_or(Direction::Forward);
    Plan {
        access: Access::scan(direction),
        sorted: sort.is_empty() || by_id.is_some(),
        exact: filter.is_empty(),
        residual: None,
    }
}

/// Returns the parts that must all match.
fn conjuncts(filter: &Filter) -> Vec<&Filter> {
    match filter {
        Filter::And(parts) => parts.iter().flat_map(conjuncts).collect(),
        other => vec![other],
    }
}

/// Returns the bounds that conjuncts put on a path, and how many of them contribute exactly.
fn bounds_of(conjuncts: &[&Filter], path: &Path, multikey: bool) -> Option<(Bounds, usize)> {
    let mut result: Option<(Bounds, usize)> = None;
    for conjunct in conjuncts {
        let Filter::Field(other, predicate) = conjunct else { continue };
        if other != path {
            continue;
        }
        let Some(found) = bounds::of(predicate) else { continue };
        result = Some(match result {
            None => (found, 1),
            // On an array, different elements may satisfy the two.
            Some((present, count)) if multikey => {
                if !present.all_points() && found.all_points() {
                    (found, 1)
                } else {
                    (present, count)
                }
            }
            Some((present, count)) => (present.intersect(&found), count + 1),
        });
    }
    result
}

/// Returns the conjuncts that bounds on these fields do not stand for.
fn residual(conjuncts: &[&Filter], fields: &[IndexField]) -> Filter {
    let held = |conjunct: &Filter| match conjunct {
        Filter::Field(path, predicate) => {
            fields.iter().any(|field| field.path == *path)
                && bounds::of(predicate).is_some_and(|bounds| bounds.exact)
        }
        _ => false,
    };
    Filter::And(
        conjuncts.iter().filter(|conjunct| !held(conjunct)).map(|conjunct| (*conjunct).clone()).collect(),
    )
}

/// Returns a plan by `_id`, and true if it looks up single documents, which nothing beats.
fn by_id(conjuncts: &[&Filter], sort: &Sort) -> Option<(Plan, bool)> {
    let is_by_id = |conjunct: &&Filter| matches!(conjunct, Filter::Field(path, _) if path.is_id());
    if !conjuncts.iter().any(is_by_id) {
        return None;
    }
    let path = Path::parse("_id").ok()?;
    let (bounds, used) = bounds_of(conjuncts, &path, false)?;
    let field = IndexField { path, descending: false };
    let ranges = ranges::combine(&[field], &[Some(&bounds)]).ranges;
    let direction = sort.id_direction();
    let single = bounds.is_point();
    let access = if ranges.is_empty() {
        Access::Nothing
    } else {
        Access::Documents { ranges, direction: direction.unwrap_or(Direction::Forward) }
    };
    let sorted = sort.is_empty() || direction.is_some() || single;
    let exact = bounds.exact && used == conjuncts.len();
    Some((Plan { access, sorted, exact, residual: None }, bounds.all_points()))
}

fn by_index(position: usize, index: &Index, conjuncts: &[&Filter], sort: &Sort) -> Option<Candidate> {
    let fields = &index.spec.fields;
    let found: Vec<Option<(Bounds, usize)>> =
        fields.iter().map(|field| bounds_of(conjuncts, &field.path, index.multikey)).collect();
    if index.spec.sparse {
        // A sparse index lacks documents that have none of its fields.
        let (first, _) = found.first()?.as_ref()?;
        if first.admits_null() {
            return None;
        }
    }
    let bounds: Vec<Option<&Bounds>> =
        found.iter().map(|found| found.as_ref().map(|(bounds, _)| bounds)).collect();
    let IndexRanges { ranges, fixed, bounded } = ranges::combine(fields, &bounds);
    let used: usize = found.iter().take(bounded).flatten().map(|(_, used)| used).sum();
    let exact_bounds = found.iter().take(bounded).flatten().all(|(bounds, _)| bounds.exact);
    let direction = if index.multikey { None } else { sort.index_direction(fields, fixed) };
    let sorted = sort.is_empty() || direction.is_some();
    let access = if ranges.is_empty() {
        Access::Nothing
    } else {
        Access::Index { position, ranges, direction: direction.unwrap_or(Direction::Forward) }
    };
    let prefix = match &access {
        // All fields have one value, so the one range is a prefix.
        Access::Index { ranges, .. } if fixed == fields.len() => {
            ranges.first().map(|range| range.start.clone())
        }
        _ => None,
    };
    let residual = (!index.multikey).then(|| residual(conjuncts, &fields[..bounded]));
    let exact_entries = exact_bounds && !index.multikey;
    let exact = exact_entries && used == conjuncts.len();
    Some(Candidate {
        plan: Plan { access, sorted, exact, residual },
        space: index.space,
        bounded,
        prefix,
        used,
        exact: exact_entries,
    })
}

/// Returns a plan that intersects indexes. It reads entries instead of documents, which pays when every index
/// has many entries; the one behind seeks ahead, so the smallest bounds the work.
fn intersection(
    collection: &Collection,
    candidates: &[Candidate],
    conjuncts: &[&Filter],
    sort: &Sort,
) -> Option<Plan> {
    let fields = |position: usize| collection.indexes[position].spec.fields.as_slice();
    let mut inputs: Vec<IntersectionInput> = Vec::new();
    let (mut used, mut exact) = (0, true);
    let mut widest: Vec<&Candidate> = candidates.iter().collect();
    widest.sort_by_key(|candidate| std::cmp::Reverse(candidate.bounded));
    for candidate in widest {
        let (Access::Index { position, .. }, Some(prefix)) = (&candidate.plan.access, &candidate.prefix)
        else {
            continue;
        };
        // A second index on the same field would say nothing new.
        let repeats = inputs
            .iter()
            .flat_map(|input| fields(input.position))
            .any(|used| fields(*position).iter().any(|field| field.path == used.path));
        if !repeats && inputs.len() < INPUTS_MAX {
            inputs.push(IntersectionInput { position: *position, prefix: prefix.clone() });
            used += candidate.used;
            exact &= candidate.exact;
        }
    }
    if inputs.len() < 2 {
        return None;
    }
    let sorted = sort.is_empty() || sort.id_direction() == Some(Direction::Forward);
    let exact = exact && used == conjuncts.len();
    Some(Plan { access: Access::Intersection(inputs), sorted, exact, residual: None })
}

/// Outcome of counting candidates' entries.
enum Choice {
    None,
    One(Candidate),
    /// None could be counted to its end; the best by other signs is at this position.
    AllLarge(Vec<Candidate>, usize),
}

/// Picks the candidate with the fewest entries, counting a bounded number of them.
fn least_entries(
    reader: &dyn Reader,
    mut candidates: Vec<Candidate>,
    limit: Option<usize>,
    sort: &Sort,
) -> Result<Choice> {
    if candidates.len() <= 1 {
        return Ok(candidates.pop().map_or(Choice::None, Choice::One));
    }
    for cap in COUNT_ROUNDS {
        let mut best = None;
        for (position, candidate) in candidates.iter().enumerate() {
            let count = count_entries(reader, candidate, cap)?;
            if count == cap {
                continue;
            }
            // In order and without a filter left, a scan ends at the limit.
            let ends_early = candidate.plan.sorted && candidate.plan.exact;
            let cost = limit.filter(|_| ends_early).map_or(count, |limit| limit.min(count));
            let rank = (cost, !candidate.plan.sorted, std::cmp::Reverse(candidate.bounded));
            if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                best = Some((rank, position));
            }
        }
        if let Some((_, position)) = best {
            return Ok(Choice::One(candidates.swap_remove(position)));
        }
    }
    // All are large. Reading in order wins if only a part is wanted; then the most bounded.
    let rank = |candidate: &Candidate| {
        let ordered = candidate.plan.sorted && limit.is_some() && !sort.is_empty();
        (ordered, candidate.bounded)
    };
    let mut best = 0;
    for position in 1..candidates.len() {
        if rank(&candidates[position]) > rank(&candidates[best]) {
            best = position;
        }
    }
    Ok(Choice::AllLarge(candidates, best))
}

fn count_entries(reader: &dyn Reader, candidate: &Candidate, cap: usize) -> Result<usize> {
    let Access::Index { ranges, .. } = &candidate.plan.access else { return Ok(0) };
    count_ranges(reader, candidate.space, ranges, cap)
}

fn count_ranges(reader: &dyn Reader, space: Space, ranges: &[Range], cap: usize) -> Result<usize> {
    let mut count = 0;
    for range in ranges {
        let mut cursor = reader.cursor(space, range, Direction::Forward)?;
        while count < cap && cursor.advance()? {
            count += 1;
        }
        if count >= cap {
            break;
        }
    }
    Ok(count)
}

/// Returns a union if some `$or` has an index for every branch.
fn by_union(reader: &dyn Reader, collection: &Collection, conjuncts: &[&Filter]) -> Result<Option<Access>> {
    'conjuncts: for conjunct in conjuncts {
        let Filter::Or(branches) = conjunct else { continue };
        let mut parts = Vec::with_capacity(branches.len());
        for branch in branches {
            let plan = choose(reader, collection, branch, &Sort::default(), None)?;
            match plan.access {
                Access::Nothing => {}
                Access::Documents { ranges, .. } if ranges == [Range::all()] => continue 'conjuncts,
                Access::Union(inner) => parts.extend(inner),
                access => parts.push(access),
            }
        }
        return Ok(Some(if parts.is_empty() { Access::Nothing } else { Access::Union(parts) }));
    }
    Ok(None)
}
